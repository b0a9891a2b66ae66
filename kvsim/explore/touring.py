"""The tour on the page: the row of stops, and the text of the open stop."""

from dash import html
from dash.development.base_component import Component

from kvsim.explore.starting_points import TOUR
from kvsim.explore.tour import STOPS, find_stop


def stops(base: str) -> list[Component]:
    """The row of stops; the stop `base` is highlighted."""
    here = base.removeprefix(TOUR) if base.startswith(TOUR) else None
    buttons = [
        html.Button(
            f"{at} {_shown(name)}",
            id={"part": "stop", "name": name, "place": "row"},
            className="here" if name == here else "",
        )
        for at, name in enumerate(STOPS, start=1)
    ]
    return [html.Span("Why paging won:"), *buttons]


def stop_page(base: str) -> list[Component]:
    """The text of the open stop, its suggestions and the next stop; empty outside of the tour."""
    if not base.startswith(TOUR):
        return []
    stop = find_stop(base.removeprefix(TOUR))
    number = STOPS.index(stop.name) + 1
    tries = [
        html.Button(each.label, id={"part": "try", "index": index})
        for index, each in enumerate(stop.tries)
    ]
    following = STOPS[number : number + 1]
    ways = [
        html.Button(
            f"Next: {_shown(name)} ›",
            id={"part": "stop", "name": name, "place": "next"},
            className="main",
        )
        for name in following
    ]
    return [
        html.H2(f"{number} of {len(STOPS)}: {stop.title}"),
        *(html.P(paragraph) for paragraph in stop.text),
        html.P([html.Strong("Look at: "), stop.look]),
        html.Div([html.Strong("Try: "), *tries, *ways], className="buttons"),
    ]


def _shown(name: str) -> str:
    return name.replace("-", " ")
