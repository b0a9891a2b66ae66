"""Error bars of several lines in one panel: shifted at equal x values, and marked if they end
beyond the panel.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

_APART = 0.01  # of the axis, from one line to the next
_MOST_SHARE = 0.4  # of the least distance of two places, that all lines of a place take
_HIGHEST = 0.92  # of the panel: where the arrows of the first line stand
_TEXT_STEP = 0.1  # of the panel, from the end named for one line to the next
_MOST_PLACES, _MOST_NAMED = 4, 3  # at which, and lines of which, ends are named and not only marked


def beside(places: Sequence[float], line: int, lines: int, *, log: bool) -> list[float]:
    """The x values of line number `line` of `lines`, shifted so that no error bar covers that of
    another line.

    log: the axis is logarithmic.
    """
    at = [math.log(place) if log else place for place in places]
    gaps = [right - left for left, right in pairwise(sorted(at))]
    if not gaps:
        return list(places)
    apart = min(_APART * sum(gaps), _MOST_SHARE * min(gaps) / lines)
    moved = [place + (line - (lines - 1) / 2) * apart for place in at]
    return [math.exp(place) if log else place for place in moved]


def room_for_ends(places: Sequence[float], *, log: bool) -> list[float]:
    """The range of an axis that leaves room for labels to the right of its last value."""
    low, high = (math.log10(each) if log else each for each in (min(places), max(places)))
    span = high - low or 1.0
    return [low - 0.05 * span, high + 0.26 * span]


def cut_marks(
    xs: Sequence[float],
    highs: Sequence[float],
    top: float,
    form: Callable[[float], str],
    line: int,
) -> dict[str, Any] | None:
    """Options of a trace of arrows, with values, at error bars that end above the panel's upper end
    `top`; None if none does. line: number of this line among those with such bars.
    """
    cut = [(x, high) for x, high in zip(xs, highs, strict=True) if high > top]
    if not cut:
        return None
    named = len(xs) <= _MOST_PLACES and line < _MOST_NAMED
    ends = [form(high) for _, high in cut]
    return {
        "x": [x for x, _ in cut],
        "y": [top * (_HIGHEST - _TEXT_STEP * line)] * len(cut),
        "mode": "markers+text" if named else "markers",
        "text": ends,
        "textposition": "middle right",
        "textfont": {"size": 11},
        "marker": {"symbol": "triangle-up", "size": 9},
        "hovertemplate": "interval to %{text}",
    }
