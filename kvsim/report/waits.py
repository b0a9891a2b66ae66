"""A distribution as its cumulative curve: what share of the requests waited no longer than x."""

from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np

from kvsim.report.classes import run_line
from kvsim.report.cumulative import Floats, axis_of, thinned
from kvsim.report.figure import Figure, compact, plain, style
from kvsim.report.numbers import seconds
from kvsim.results.result import Result

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

WaitsOf: TypeAlias = "staticmethod[[pd.DataFrame], Floats]"


class Waits(Figure):
    """A figure of one kind of wait: a cumulative curve a run, over finished requests."""

    nothing: ClassVar[str] = "No request finished."
    span: ClassVar[Literal["full", "half"]] = "half"
    lines: ClassVar[bool] = True

    # What the page's scripts call this wait of a request, to mark it.
    mark: ClassVar[str]
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
        ends = min(x[0] for _, _, x, _ in curves), max(x[-1] for _, _, x, _ in curves)
        axis, least = axis_of(*ends)
        figure = go.Figure()
        for index, label, x, share in curves:
            figure.add_scatter(
                name=plain(label),
                x=compact(np.maximum(x, least)),
                y=compact(100 * share),
                mode="lines",
                line={**run_line(index), "width": 2, "shape": "hv"},
                text=[seconds(value) for value in x],
                hovertemplate="%{y:.1f} % within %{text}<extra>%{fullData.name}</extra>",
            )
        style(
            figure,
            height_px=260,
            hovermode="closest",
            margin={"l": 52, "r": 26, "t": 8, "b": 34},
            meta={"mark": self.mark},
        )
        figure.update_xaxes(**axis)
        figure.update_yaxes(range=[0, 101], dtick=25, ticksuffix=" %")
        return figure
