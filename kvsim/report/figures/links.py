"""Transfers over links over time: between prefill and decode replicas, and to tiers."""

from typing import ClassVar

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvsim.plumbing.units import PS_PER_S
from kvsim.report.classes import run_line
from kvsim.report.figure import Figure, compact, plain
from kvsim.report.panels import over_time, panels
from kvsim.results.result import Result

_BUCKETS = 120
_DASHES = ("solid", "dash", "dot", "dashdot")

Floats = NDArray[np.float64]


class Links(Figure):
    """Bytes a second, copies in progress, and queued copies."""

    title: ClassVar[str] = "Use of the links over time"
    note: ClassVar[str] = (
        "Means over buckets of time: what a link carried, how many copies moved at once (under 1, "
        "the share of the time in which one moved), and how many waited for their turn."
    )
    nothing: ClassVar[str] = "No run has a link that KV moves over, or nothing moved."

    def draw(self, result: Result) -> go.Figure | None:
        """Three panels with a line per run and link."""
        tables = [
            (index, run.label, copies)
            for index, run in enumerate(result.runs)
            if (copies := run.table("links")) is not None and len(copies)
        ]
        if not tables:
            return None
        ends_ps = max(int(copies["end_ps"].max()) for _, _, copies in tables)
        last_ps = max(int(run.memory["end_ps"].max()) for run in result.runs if len(run.memory))
        end_s = max(ends_ps, last_ps) / PS_PER_S
        figure = panels(["GB/s", "copies that move", "copies that wait"], panel_px=120, gap_px=36)
        unit_s = over_time(figure, end_s)
        edges = np.linspace(0, end_s, _BUCKETS + 1)
        x = compact((edges[:-1] + edges[1:]) / 2 / unit_s)
        for index, label, copies in tables:
            for place, (link, moved) in enumerate(copies.groupby("link", sort=False)):
                asked, start, end = (
                    moved[name].to_numpy(np.float64) / PS_PER_S
                    for name in ("asked_ps", "start_ps", "end_ps")
                )
                speed = (
                    moved["num_bytes"].to_numpy(np.float64) / 1e9 / np.maximum(end - start, 1e-12)
                )
                line = {**run_line(index), "width": 2, "dash": _DASHES[place % len(_DASHES)]}
                for row, means in enumerate(
                    (
                        _means(edges, start, end, speed),
                        _means(edges, start, end, np.ones(len(moved))),
                        _means(edges, asked, start, np.ones(len(moved))),
                    ),
                    start=1,
                ):
                    figure.add_scatter(
                        name=plain(f"{label}, {link}"), x=x, y=compact(means), mode="lines",
                        line=line, hovertemplate="%{y:,.3g}", row=row, col=1,
                        legendgroup=f"{index} {link}", showlegend=row == 1,
                    )  # fmt: skip
        figure.update_yaxes(rangemode="tozero")
        height = figure.layout.height - 98
        above = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1 + 20 / height}
        figure.update_layout(showlegend=True, legend={**above, "yanchor": "bottom"}, margin_t=64)
        return figure


def _means(edges: Floats, begin: Floats, end: Floats, height: Floats) -> Floats:
    """Time-weighted means between successive `edges` of the total `height` of n intervals.

    begin, end, height: (n,); interval i adds height[i] from begin[i] to end[i].
    """
    area = _ramps(edges, begin, height) - _ramps(edges, end, height)
    means: Floats = np.maximum(np.diff(area) / np.diff(edges), 0)
    return means


def _ramps(at: Floats, begin: Floats, slope: Floats) -> Floats:
    """For each time t in `at`: the sum of slope[i] * (t - begin[i]) over all begin[i] < t."""
    order = np.argsort(begin, kind="stable")
    begun, slopes = begin[order], slope[order]
    count = np.searchsorted(begun, at)
    zero = np.zeros(1)
    slopes_sum = np.concatenate([zero, np.cumsum(slopes)])[count]
    moments = np.concatenate([zero, np.cumsum(slopes * begun)])[count]
    ramps: Floats = slopes_sum * at - moments
    return ramps
