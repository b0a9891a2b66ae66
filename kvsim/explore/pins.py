"""The bar of pinned runs."""

from urllib.parse import parse_qsl

from dash import html
from dash.development.base_component import Component

from kvsim.explore.visit import PageVisit


def short_name(pin: str) -> str:
    """A pinned state by where it started and what was set."""
    return ", ".join(value.rpartition(".")[2] for _, value in parse_qsl(pin))


def pin_bar(visit: PageVisit) -> list[Component]:
    """A button for each pinned run, which removes it."""
    if not visit.pins:
        return []
    buttons = [
        html.Button(
            [f"{chr(ord('A') + index)}: ", html.Bdi(short_name(pin)), " ✕"],
            id={"part": "unpin", "index": index},
            title="Remove the pin",
        )
        for index, pin in enumerate(visit.pins)
    ]
    return [html.Div([html.Span("Pinned:"), *buttons], className="buttons pins")]
