"""The actions of the explorer page: how a click or a new value changes a visit, one pure function
each.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from dash.development.base_component import Component

from kvsim.explore.controls import CONTROLS
from kvsim.explore.controls.allocators import added, removed
from kvsim.explore.page_context import PageContext
from kvsim.explore.starting_points import TOUR
from kvsim.explore.state import ScenarioState, started
from kvsim.explore.tour import find_stop
from kvsim.explore.visit import MOST_PINS, PageVisit
from kvsim.explore.widgets import KEY, read_value
from kvsim.plumbing.keys import assignment, put


def begin(visit: PageVisit, context: PageContext, base: str) -> PageVisit:
    """A visit that starts from another starting point.

    Pinned runs remain, except between a stop of the tour and a scenario of one's own.
    """
    pins = visit.pins if _is_tour(visit.state.base) == _is_tour(base) else ()
    return visit._replace(state=started(context.starting_points[base]), sweep="", pins=pins)


def _is_tour(base: str) -> bool:
    return base.startswith(TOUR)


def turn(visit: PageVisit, context: PageContext, values: Mapping[str, Any]) -> PageVisit:
    """The visit with scenario keys set to the values of their widgets; InputError if the result is
    not a valid scenario.
    """
    table = deepcopy(visit.state.table)
    for key, value in values.items():
        _set(table, key, value)
    return _checked(visit, context, table)


def add_allocator(visit: PageVisit, context: PageContext) -> PageVisit:
    """The visit with one more allocator."""
    table = deepcopy(visit.state.table)
    added(table)
    return _checked(visit, context, table)


def remove_allocator(visit: PageVisit, context: PageContext, index: int) -> PageVisit:
    """The visit without the allocator of this index."""
    table = deepcopy(visit.state.table)
    removed(table, index)
    return _checked(visit, context, table)


def attempt(visit: PageVisit, context: PageContext, index: int) -> PageVisit:
    """The visit with the keys set that suggestion number `index` of a tour stop sets."""
    table = deepcopy(visit.state.table)
    for each in find_stop(visit.state.base.removeprefix(TOUR)).tries[index].settings:
        put(table, *assignment(each, "try"), "try")
    return _checked(visit, context, table)


def pin(visit: PageVisit, context: PageContext) -> PageVisit:
    """The visit with its run pinned, to be shown next to later runs."""
    query = visit.state.query(context.starting_points)
    if query in visit.pins or len(visit.pins) >= MOST_PINS:
        return visit
    return visit._replace(pins=(*visit.pins, query))


def unpin(visit: PageVisit, index: int) -> PageVisit:
    """The visit without the pinned run of this index."""
    return visit._replace(pins=visit.pins[:index] + visit.pins[index + 1 :])


def sweep(
    visit: PageVisit, context: PageContext, key: str, low: Any, high: Any, count: Any
) -> PageVisit:
    """The visit with a sweep of one key; InputError if low and high are not a range."""
    log = "log" if isinstance(low, int | float) and low > 0 else ""
    asked = f"{key}={low}:{high}:{count}{log}"
    context.sweep_task(visit.state, asked)
    return visit._replace(sweep=asked)


def control_widgets(table: dict[str, Any]) -> dict[str, list[Component]]:
    """The widgets of every control, by the control's name."""
    return {name: CONTROLS.get(name)().widgets(table) for name in CONTROLS}


def shown_values(table: dict[str, Any]) -> dict[str, Any]:
    """The widgets' values, by their keys."""
    found = {}
    for widgets in control_widgets(table).values():
        for widget in widgets:
            for each in (widget, *widget._traverse()):
                name = getattr(each, "id", None)
                if isinstance(name, dict) and name.get("part") == KEY:
                    found[name["key"]] = getattr(each, "value", None)
    return found


def differing(
    table: dict[str, Any], ids: list[dict[str, Any]], values: list[Any]
) -> dict[str, Any]:
    """Values of the widgets `ids` that differ from the scenario's tables."""
    shown = shown_values(table)
    return {
        name["key"]: read_value(name["form"], value)
        for name, value in zip(ids, values, strict=True)
        if name["key"] in shown and (value or None) != (shown[name["key"]] or None)
    }


def _set(table: dict[str, Any], key: str, value: Any) -> None:
    if value is not None:
        for name in CONTROLS:
            if CONTROLS.get(name)().chosen(table, key, value):
                return
        put(table, key, value, "page")
        return
    place: Any = table
    *parts, last = key.split(".")
    for part in parts:
        place = place[int(part)] if isinstance(place, list) else place.get(part, {})
    place.pop(last, None)


def _checked(visit: PageVisit, context: PageContext, table: dict[str, Any]) -> PageVisit:
    state = ScenarioState(visit.state.base, table)
    state.scenario(context.starting_points).labels()
    return visit._replace(state=state, sweep="")
