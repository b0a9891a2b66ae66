"""The control of the scheduler and all its options."""

from typing import Any, ClassVar

from dash import html
from dash.development.base_component import Component

from kvsim.engine.schedulers import SCHEDULERS
from kvsim.explore.controls.control import Control
from kvsim.explore.widgets import choice, explained, labelled, options_fields
from kvsim.scenario.allocator_table import DEFAULT_SCHEDULER


class SchedulerControl(Control):
    """The scheduler's kind and first key, and its other keys in a collapsed section."""

    title: ClassVar[str] = "Scheduler"

    def widgets(self, table: dict[str, Any]) -> list[Component]:
        held = table.get("scheduler", DEFAULT_SCHEDULER)
        held = {"kind": held} if isinstance(held, str) else held
        kind = held.get("kind", DEFAULT_SCHEDULER)
        options = SCHEDULERS.get(kind)
        fields = options_fields(options, held, "scheduler")
        more = html.Details([html.Summary("more"), *fields[4:], explained(options)])
        return [labelled("kind", choice("scheduler.kind", SCHEDULERS, kind)), *fields[:4], more]

    def chosen(self, table: dict[str, Any], key: str, value: Any) -> bool:
        if not key.startswith("scheduler."):
            return False
        held = table.get("scheduler", DEFAULT_SCHEDULER)
        table["scheduler"] = {"kind": held} if isinstance(held, str) else dict(held)
        if key != "scheduler.kind":
            return False
        known = SCHEDULERS.get(value).model_fields
        table["scheduler"] = {
            "kind": value, **{k: v for k, v in table["scheduler"].items() if k in known}
        }  # fmt: skip
        return True
