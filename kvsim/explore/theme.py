"""Light and dark themes for plotly figures, in the report's colours."""

import json
from typing import Any

from kvsim.report.classes import DARK
from kvsim.report.figure import DARK_INKS

_SWAPS = DARK | DARK_INKS
_TEXTS = ("name", "text", "customdata")  # a label may look like a colour


def themed(figure_json: str, dark: bool) -> dict[str, Any]:
    """The figure in `figure_json`, in the colours of the theme."""
    figure: dict[str, Any] = json.loads(figure_json)
    if dark:
        figure = _swapped(figure)
    return figure


def _swapped(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: v if k in _TEXTS else _swapped(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_swapped(each) for each in value]
    return _SWAPS.get(value, value) if isinstance(value, str) else value
