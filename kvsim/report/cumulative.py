"""A distribution as its cumulative curve, and the logarithmic axis of time that it stands on."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The axis is logarithmic and has this many decades at most: shorter waits are drawn on its edge.
_DECADES = 6
_LEAST_S = 1e-6
_POINTS = 240
_TAIL = 40


def thinned(values: Floats) -> tuple[Floats, Floats]:
    """(x, share) of the empirical distribution at some of its own points, the whole tail included.

    values: (n,) n >= 1. Both results ascend; share[i] is exactly the share of values <= x[i] where
    no value repeats; the first share is 0, the last 1.
    """
    ordered = np.sort(values)
    n = len(ordered)
    ranks = np.unique(
        np.concatenate([
            np.linspace(0, n - 1, min(n, _POINTS)).round().astype(np.int64),
            np.arange(max(0, n - _TAIL), n),
        ])
    )  # fmt: skip
    return np.r_[ordered[0], ordered[ranks]], np.r_[0.0, (ranks + 1) / n]


def axis_of(shortest: float, longest: float) -> tuple[dict[str, Any], float]:
    """Plotly's options of an axis for values of seconds between these, and its left edge: what is
    shorter is drawn there, and the edge says so.
    """
    low, right = _span(shortest, longest)
    cut = shortest < 10.0**low
    decades = range(low, math.floor(right) + 1)
    return {
        "type": "log",
        "range": [low - 0.02, right],
        "tickvals": [10.0**decade for decade in decades],
        "ticktext": [
            f"{'≤ ' if cut and decade == low else ''}{_decade(decade)}" for decade in decades
        ],
        "tickangle": 0,
    }, 10.0**low


def _span(shortest: float, longest: float) -> tuple[int, float]:
    """The axis, as powers of ten: a whole one on the left, a little more than the longest wait."""
    right = math.log10(max(longest, _LEAST_S)) + 0.06
    left = math.floor(math.log10(max(shortest, _LEAST_S)) + 1e-9)
    return max(left, math.ceil(right) - _DECADES), right


def _decade(power: int) -> str:
    """10**power seconds, short enough for a tick: `10 ms`, `1,000 s`."""
    if power >= 0:
        return f"{10**power:,} s"
    return f"{10 ** (power + 3)} ms" if power >= -3 else f"{10 ** (power + 6)} µs"
