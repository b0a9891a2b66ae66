"""A distribution as its cumulative curve: what share of the requests waited no longer than x."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kvsim.report.classes import run_line
from kvsim.report.figure import compact, style
from kvsim.report.numbers import seconds
from kvsim.results.store import ResultLike

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Floats = NDArray[np.float64]

# The axis is logarithmic and ends here on the left: waits below it are drawn on its edge.
FLOOR_S = 1e-4
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


def draw_waits(result: ResultLike, waits: Callable[["pd.DataFrame"], Floats]) -> "go.Figure | None":
    """The cumulative curves of all runs' waits (seconds); None where no request has one."""
    import plotly.graph_objects as go

    curves = [
        (index, run.label, *thinned(values))
        for index, run in enumerate(result.runs)
        if len(values := waits(run.requests))
    ]
    if not curves:
        return None
    figure = go.Figure()
    for index, label, x, share in curves:
        figure.add_scatter(
            name=label,
            x=compact(np.maximum(x, FLOOR_S)),
            y=compact(100 * share),
            mode="lines",
            line={**run_line(index), "width": 2, "shape": "hv"},
            text=[seconds(value) for value in x],
            hovertemplate=f"%{{y:.1f}} % within %{{text}}<extra>{label}</extra>",
        )
    low = math.floor(math.log10(max(FLOOR_S, min(x[0] for _, _, x, _ in curves))) + 1e-9)
    high = math.ceil(math.log10(max(FLOOR_S, max(x[-1] for _, _, x, _ in curves))) - 1e-9)
    high = max(high, low + 1)
    decades = range(low, high + 1)
    style(figure, height_px=260, hovermode="closest", margin={"l": 52, "r": 12, "t": 8, "b": 34})
    figure.update_xaxes(
        type="log",
        range=[low - 0.02, high],
        tickvals=[10.0**decade for decade in decades],
        ticktext=[_tick(decade) for decade in decades],
    )
    figure.update_yaxes(range=[0, 101], dtick=25, ticksuffix=" %")
    return figure


def _tick(decade: int) -> str:
    text = f"{10**decade:,} s" if decade >= 0 else f"{10.0 ** (decade + 3):g} ms"
    return f"≤ {text}" if 10.0**decade <= FLOOR_S else text
