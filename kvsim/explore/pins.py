"""The bar of pinned runs."""

from urllib.parse import parse_qsl

from dash import html
from dash.development.base_component import Component

from kvsim.explore.knob_words import words_of
from kvsim.explore.starting_points import TOUR
from kvsim.explore.visit import MOST_PINS, PageVisit


def short_name(pin: str) -> str:
    """The name of a pinned state: its starting point and the changed keys, in words."""
    (_, base), *settings = parse_qsl(pin)
    return ", ".join([base.removeprefix(TOUR), *(_set_words(value) for _, value in settings)])


def _set_words(setting: str) -> str:
    key, _, value = setting.partition("=")
    words = words_of(key.strip())
    name = key.strip().rpartition(".")[2] if words == key.strip() else words
    return f"{name}: {value.strip()}"


def pin_button(visit: PageVisit, query: str) -> tuple[str, bool]:
    """(text of the pin button for the state of this query, whether it is enabled)."""
    if query in visit.pins:
        return "Pinned", False
    if len(visit.pins) >= MOST_PINS:
        return f"{MOST_PINS} pinned, at most", False
    return "Pin", True


def pin_bar(visit: PageVisit) -> list[Component]:
    """A bar with one button for each pinned run, which unpins it."""
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
