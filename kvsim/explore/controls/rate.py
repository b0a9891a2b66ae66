"""The control of the load: a slider for the first workload key that sets the load."""

from collections.abc import Iterator, Mapping
from math import floor, log10
from typing import Any, ClassVar

from dash import dcc
from dash.development.base_component import Component

from kvsim.explore.controls.control import Control
from kvsim.explore.widgets import identity, labelled, typed

RATES = ("rate_per_s", "rate_scale", "num_users")
_COUNTS = ("num_requests", "num_sessions", "limit")


class Rate(Control):
    """A slider for requests per second, users, or the speed-up of a trace."""

    title: ClassVar[str] = "How much comes"
    is_open: ClassVar[bool] = True

    def widgets(self, table: dict[str, Any]) -> list[Component]:
        found = []
        for key, value in _numbers(table.get("workload"), "workload"):
            name = key.rpartition(".")[2]
            if name in RATES:
                found.append(labelled(name, _slider(key, value, whole=name == "num_users")))
            elif name in _COUNTS:
                found.append(labelled(name, typed(key, value)))
        return found


def _numbers(table: Any, path: str) -> Iterator[tuple[str, float]]:
    """The numeric keys of nested tables; a trace has a speed-up even if none is given."""
    if not isinstance(table, Mapping):
        return
    if table.get("kind") == "trace" and not table.keys() & {"rate_per_s", "arrivals"}:
        table = {"rate_scale": 1.0, **table}
    for key, value in table.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{path}.{key}", value
        else:
            yield from _numbers(value, f"{path}.{key}")


def _slider(key: str, value: float, *, whole: bool) -> Component:
    """A slider from nearly zero to several times the value, in round steps."""
    decade = 10.0 ** floor(log10(value))
    top = 5 * decade if value <= 2 * decade else 20 * decade
    step = max(1.0, decade / 10) if whole else decade / 10
    return dcc.Slider(
        id=identity(key, "number"),
        min=step, max=top, step=step, value=value, marks=None,
        updatemode="mouseup",
    )  # fmt: skip
