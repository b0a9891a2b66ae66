"""Dash callback that changes a visit: by widgets, buttons, and the address."""

from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, html, no_update
from dash.development.base_component import Component

from kvsim.explore import actions, touring
from kvsim.explore.controls import CONTROLS
from kvsim.explore.controls.allocators import ADD, REMOVE
from kvsim.explore.page_context import PageContext
from kvsim.explore.pins import pin_bar, pin_button
from kvsim.explore.starting_points import TOUR
from kvsim.explore.visit import PageVisit
from kvsim.explore.widgets import KEY, SAID
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.toml_text import value_of


def register(app: Dash, context: PageContext) -> None:
    """Register the callback with the app."""

    @app.callback(
        output={
            "visit": Output("visit", "data"),
            "fault": Output("fault", "children"),
            "said": Output({"part": SAID, "key": ALL}, "children"),
            "address": Output("address", "search"),
            "base": Output("base", "value"),
            "controls": Output("controls", "children"),
            "tour": Output("tour", "children"),
            "stop": Output("stop", "children"),
            "command": Output("command", "children"),
            "pins": Output("pins", "children"),
            "pin": Output("pin", "children"),
            "unpinnable": Output("pin", "disabled"),
        },
        inputs={
            "search": Input("address", "search"),
            "base": Input("base", "value"),
            "values": Input({"part": KEY, "key": ALL, "form": ALL}, "value"),
            "clicks": (
                Input({"part": ADD, "index": ALL}, "n_clicks"),
                Input({"part": REMOVE, "index": ALL}, "n_clicks"),
                Input({"part": "stop", "name": ALL, "place": ALL}, "n_clicks"),
                Input({"part": "try", "index": ALL}, "n_clicks"),
                Input({"part": "unpin", "index": ALL}, "n_clicks"),
                Input("pin", "n_clicks"),
                Input("sweep-run", "n_clicks"),
            ),
        },
        state={
            "held": State("visit", "data"),
            "ids": State({"part": KEY, "key": ALL, "form": ALL}, "id"),
            "sweep": tuple(
                State(f"sweep-{name}", "value") for name in ("key", "low", "high", "count")
            ),
        },
    )
    def change(
        search: str,
        base: str | None,
        values: list[Any],
        clicks: Any,
        held: dict[str, Any] | None,
        ids: list[Any],
        sweep: tuple[Any, ...],
    ) -> dict[str, Any]:
        cause = ctx.triggered_id
        clicked = bool(ctx.triggered and ctx.triggered[0]["value"])
        try:
            if held is None:
                return _shown(PageVisit.at(search or "", context), None, context)
            old = PageVisit.restored(held)
            if cause == "address":
                new = old if search == old.query(context) else PageVisit.at(search or "", context)
            elif cause == "base":
                new = old if base in (None, old.state.base) else actions.begin(old, context, base)
            elif isinstance(cause, dict) and cause["part"] == KEY:
                changes = actions.differing(old.state.table, ids, values)
                new = actions.turn(old, context, changes) if changes else old
            elif not clicked:
                new = old
            elif cause == "pin":
                new = actions.pin(old, context)
            elif cause == "sweep-run":
                key, *ends = sweep
                new = actions.sweep(old, context, key, *(value_of(str(each)) for each in ends))
            else:
                new = _clicked(old, context, cause)
        except InputError as error:
            return _refused(error, held, context)
        turned = isinstance(cause, dict) and cause["part"] == KEY
        return _shown(new, old, context, widgets_stay=turned)


def make_once(context: PageContext) -> None:
    """Build the default's widgets once, so that the modules that they need are loaded before a page
    asks.
    """
    _controls(context.starting_points[context.default].table)


def _clicked(visit: PageVisit, context: PageContext, cause: dict[str, Any]) -> PageVisit:
    part = cause["part"]
    if part == ADD:
        return actions.add_allocator(visit, context)
    if part == REMOVE:
        return actions.remove_allocator(visit, context, cause["index"])
    if part == "stop":
        return actions.begin(visit, context, f"{TOUR}{cause['name']}")
    if part == "try":
        return actions.attempt(visit, context, cause["index"])
    return actions.unpin(visit, cause["index"])


def _refused(
    error: InputError, held: dict[str, Any] | None, context: PageContext
) -> dict[str, Any]:
    """The page's answer to a refused change: an error message; the page keeps its state, or is
    reset.
    """
    if held is None:
        shown = _shown(PageVisit.at("", context), None, context)
        return {**shown, "fault": str(error), "address": no_update}
    names = ("visit", "address", "base", "controls", "tour", "stop", "command", "pins")
    cause = ctx.triggered_id
    key = cause.get("key") if isinstance(cause, dict) else None
    return {
        **dict.fromkeys(names, no_update),
        **_pin_button(PageVisit.restored(held), context),
        "fault": str(error),
        "said": _said(key, str(error)),
    }


def _said(key: str | None, fault: str) -> list[str]:
    """The error text at the widget of this key, and no text at all others."""
    places = [each["id"]["key"] for each in ctx.outputs_grouping["said"]]
    return [fault if place == key else "" for place in places]


def _shown(
    new: PageVisit, old: PageVisit | None, context: PageContext, *, widgets_stay: bool = False
) -> dict[str, Any]:
    """The parts of the page that have changed.

    Widgets in use by the reader are not replaced if possible.
    """
    table = new.state.table
    same = old is not None and new == old
    turned = old is None or table != old.state.table
    kept = old is not None and _shape(table) == _shape(old.state.table)
    name = new.state.base
    moved = old is None or name != old.state.base
    return {
        "visit": no_update if same else new.stored(),
        "fault": "",
        "said": _said(None, ""),
        "address": no_update if same else new.query(context),
        "base": None if name.startswith(TOUR) else name,
        "controls": _controls(table) if turned and not (widgets_stay and kept) else no_update,
        "tour": touring.stops(name) if moved else no_update,
        "stop": touring.stop_page(name) if moved else no_update,
        "pins": pin_bar(new) if old is None or new.pins != old.pins else no_update,
        "command": no_update if same else _command(new, context),
        **_pin_button(new, context),
    }


def _pin_button(visit: PageVisit, context: PageContext) -> dict[str, Any]:
    text, free = pin_button(visit, visit.state.query(context.starting_points))
    return {"pin": text, "unpinnable": not free}


def _shape(table: dict[str, Any]) -> list[str]:
    return list(actions.shown_values(table))


def _controls(table: dict[str, Any]) -> list[Component]:
    return [
        html.Details(
            [html.Summary(control.title), *widgets], open=control.is_open, className="control"
        )
        for name, widgets in actions.control_widgets(table).items()
        if widgets
        for control in [CONTROLS.get(name)]
    ]


def _command(visit: PageVisit, context: PageContext) -> str:
    """The `kvsim run` command for this state."""
    from shlex import quote

    base = context.starting_points[visit.state.base]
    if base.asked is None:
        return "kvsim run SCENARIO.toml    # a stop of the tour: save the scenario first"
    sets = [f"--set {quote(each)}" for each in visit.state.settings(context.starting_points)]
    return " \\\n    ".join([f"kvsim run {quote(base.asked)}", *sets])
