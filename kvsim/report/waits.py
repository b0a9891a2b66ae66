"""A distribution as its cumulative curve: what share of the requests waited no longer than x."""

import math
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvsim.report.classes import run_line
from kvsim.report.figure import Figure, compact, style
from kvsim.report.numbers import seconds
from kvsim.results.result import Result

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Floats = NDArray[np.float64]
WaitsOf: TypeAlias = "staticmethod[[pd.DataFrame], Floats]"

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


class Waits(Figure):
    """A figure of one kind of wait: a cumulative curve a run, over finished requests."""

    nothing: ClassVar[str] = "No request finished."
    span: ClassVar[Literal["full", "half"]] = "half"
    lines: ClassVar[bool] = True

    # Out of a run's table of requests: (n,) the waits, in seconds. A static method.
    waits_s: ClassVar[WaitsOf]

    def draw(self, result: Result) -> "go.Figure | None":
        """The cumulative curves of all runs; None where no request waited so."""
        import plotly.graph_objects as go

        curves = [
            (index, run.label, *thinned(values))
            for index, run in enumerate(result.runs)
            if len(values := self.waits_s(run.requests))
        ]
        if not curves:
            return None
        low, right = _span(min(x[0] for _, _, x, _ in curves), max(x[-1] for _, _, x, _ in curves))
        cut = any(x[0] < 10.0**low for _, _, x, _ in curves)
        decades = range(low, math.floor(right) + 1)
        figure = go.Figure()
        for index, label, x, share in curves:
            figure.add_scatter(
                name=label,
                x=compact(np.maximum(x, 10.0**low)),
                y=compact(100 * share),
                mode="lines",
                line={**run_line(index), "width": 2, "shape": "hv"},
                text=[seconds(value) for value in x],
                hovertemplate=f"%{{y:.1f}} % within %{{text}}<extra>{label}</extra>",
            )
        style(
            figure, height_px=260, hovermode="closest", margin={"l": 52, "r": 26, "t": 8, "b": 34}
        )
        figure.update_xaxes(
            type="log",
            range=[low - 0.02, right],
            tickvals=[10.0**decade for decade in decades],
            ticktext=[
                f"{'≤ ' if cut and decade == low else ''}{_decade(decade)}" for decade in decades
            ],
            tickangle=0,
        )
        figure.update_yaxes(range=[0, 101], dtick=25, ticksuffix=" %")
        return figure


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
