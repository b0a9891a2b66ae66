"""The control of the workload: the starting point's, or any recipe's."""

from typing import Any, ClassVar

from dash import html
from dash.development.base_component import Component

from kvsim.explore.controls.control import Control
from kvsim.explore.widgets import choice, labelled, typed
from kvsim.plumbing.toml import to_toml
from kvsim.scenario import load_tables, recipes

_FROM = "workload.of recipe"


class WorkloadControl(Control):
    """A choice of a recipe's requests, and the client-side keys of the workload."""

    title: ClassVar[str] = "Workload"

    def widgets(self, table: dict[str, Any]) -> list[Component]:
        workload = table.get("workload") or {}
        names = _recipes()
        now = next((name for name, each in names.items() if each == workload), None)
        return [
            labelled("of recipe", choice(_FROM, names, now)),
            labelled("n", typed("workload.n", workload.get("n"), 1)),
            html.Details(
                [
                    html.Summary("all of it"),
                    html.Pre(to_toml({"workload": workload}), className="meaning"),
                ]
            ),
        ]

    def chosen(self, table: dict[str, Any], key: str, value: Any) -> bool:
        if key != _FROM:
            return False
        table["workload"] = _recipes()[value]
        return True


def _recipes() -> dict[str, dict[str, Any]]:
    """The recipes that need no further file."""
    held = {name: load_tables(name)[0]["workload"] for name in recipes()}
    return {name: workload for name, workload in held.items() if "path" not in workload}
