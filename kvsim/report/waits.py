"""Latencies as cumulative curves: the share of the requests that waited at most x seconds."""

from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import plotly.graph_objects as go

from kvsim.report.cumulative import Curve, Floats, add_curves
from kvsim.report.figure import Figure, style
from kvsim.results.result import Result

if TYPE_CHECKING:
    import pandas as pd

WaitsOf: TypeAlias = "staticmethod[[pd.DataFrame], Floats]"


class Waits(Figure):
    """A figure of one latency: a cumulative curve per run, over finished requests."""

    nothing: ClassVar[str] = "No request finished."
    span: ClassVar[Literal["full", "half"]] = "half"
    lines: ClassVar[bool] = True

    # What the page's scripts call this wait of a request, to mark it.
    mark: ClassVar[str]
    # Out of a run's table of requests: (n,) the waits, in seconds. A static method.
    waits_s: ClassVar[WaitsOf]

    def draw(self, result: Result) -> go.Figure | None:
        """The cumulative curves of all runs; None if no request has this latency."""
        curves = [
            Curve(index, run.label, values)
            for index, run in enumerate(result.runs)
            if len(values := self.waits_s(run.requests))
        ]
        if not curves:
            return None
        figure = go.Figure()
        margin = {"l": 52, "r": 26, "t": 8, "b": 34}
        style(figure, height_px=260, margin=margin, meta={"mark": self.mark})
        add_curves(figure, [curves])
        return figure
