"""Cumulative distribution curves on a logarithmic axis of time."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvsim.report.classes import run_line
from kvsim.report.figure import compact, plain
from kvsim.report.numbers import seconds

Floats = NDArray[np.float64]

# The axis is logarithmic and has this many decades at most: shorter waits are drawn on its edge.
_DECADES = 6
_LEAST_S = 1e-6
_POINTS = 240
_TAIL = 40
_SAMPLE = 4000


class Curve(NamedTuple):
    """The distribution of one run: index of the run, its label, and (n,) n >= 1 times in s."""

    place: int
    label: str
    spans_s: Floats


def add_curves(figure: go.Figure, panels: Sequence[Sequence[Curve]]) -> None:
    """Draw the cumulative curves of each panel of `figure`, top to bottom, with a shared axis of
    time.
    """
    everyone = [curve.spans_s for curves in panels for curve in curves]
    axis, least = axis_of(min(map(np.min, everyone)), max(map(np.max, everyone)))
    for row, curves in enumerate(panels, start=1):
        for place, label, spans_s in curves:
            x, share = thinned(spans_s)
            figure.add_scatter(
                name=plain(label),
                x=compact(np.maximum(x, least)),
                y=compact(100 * share),
                mode="lines",
                line={**run_line(place), "width": 2, "shape": "hv"},
                text=[seconds(value) for value in x],
                hovertemplate="%{y:.1f} % within %{text}<extra>%{fullData.name}</extra>",
                xaxis="x" if row == 1 else f"x{row}",
                yaxis="y" if row == 1 else f"y{row}",
            )
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(**axis)
    figure.update_yaxes(range=[0, 101], dtick=25, ticksuffix=" %")


def thinned(values: Floats) -> tuple[Floats, Floats]:
    """(x, share): points of the empirical distribution, thinned except for its upper tail.

    values: (n,) n >= 1. Both results ascend, share from 0 to 1; if no value repeats, share[i] is
    exactly the share of values <= x[i].
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


def weighed(values: Floats, weights: NDArray[np.number[Any]]) -> Floats:
    """A sample of 4,000 values with equal weights and the same distribution; empty if there are no
    values.

    values, weights: (n,).
    """
    if not len(values):
        return values
    order = np.argsort(values)
    passed = np.cumsum(weights[order], dtype=np.float64)
    marks = (np.arange(_SAMPLE) + 0.5) / _SAMPLE * passed[-1]
    return np.asarray(values[order[np.searchsorted(passed, marks)]], dtype=np.float64)


def axis_of(shortest: float, longest: float) -> tuple[dict[str, Any], float]:
    """Plotly's options for a logarithmic axis of seconds from `shortest` to `longest`, and its left
    end.

    Shorter values than the axis can show are drawn at its left end, labelled with "≤".
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
    """Ends of the axis as powers of ten: a whole power on the left, a bit above `longest` on the
    right.
    """
    right = math.log10(max(longest, _LEAST_S)) + 0.06
    left = math.floor(math.log10(max(shortest, _LEAST_S)) + 1e-9)
    return max(left, math.ceil(right) - _DECADES), right


def _decade(power: int) -> str:
    """10**power seconds, short enough for a tick: `10 ms`, `1,000 s`."""
    if power >= 0:
        return f"{10**power:,} s"
    return f"{10 ** (power + 3)} ms" if power >= -3 else f"{10 ** (power + 6)} µs"
