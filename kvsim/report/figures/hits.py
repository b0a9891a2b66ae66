"""The prefix cache's hit ratio over time."""

from typing import ClassVar

import numpy as np
import plotly.graph_objects as go

from kvsim.plumbing.units import PS_PER_S
from kvsim.report.classes import run_line
from kvsim.report.figure import Figure, compact, plain, style
from kvsim.report.panels import over_time
from kvsim.results.result import Result

_BUCKETS = 80
_TOTALS = ("hit_tokens", "query_tokens")


class CacheHits(Figure):
    """Prefix cache hit rate over time: hits as a share of the prompt tokens looked up."""

    title: ClassVar[str] = "Prefix cache hits over time"
    note: ClassVar[str] = (
        "Of the prompt tokens looked up in each bucket of time, the share that the prefix cache or "
        "a tier behind the device held, and nobody had to compute."
    )
    nothing: ClassVar[str] = "No prefix cache found anything, or the runs were not traced."
    lines: ClassVar[bool] = True

    def draw(self, result: Result) -> go.Figure | None:
        """A line per run with hits; a bucket of time without a lookup is a gap."""
        tables = [(index, run, run.table("events")) for index, run in enumerate(result.runs)]
        hit = [
            (index, run, events)
            for index, run, events in tables
            if events is not None and len(events) and events["hit_tokens"].iloc[-1]
        ]
        if not hit:
            return None
        end_ps = max(int(run.memory["end_ps"].max()) for _, run, _ in hit)
        figure = go.Figure()
        style(figure, height_px=260)
        unit_s = over_time(figure, end_ps / PS_PER_S)
        edges = np.linspace(0, end_ps, _BUCKETS + 1)
        x = compact((edges[:-1] + edges[1:]) / 2 / PS_PER_S / unit_s)
        for index, run, events in hit:
            times = events["time_ps"].to_numpy(np.float64)
            hits, queries = (
                np.histogram(times, edges, weights=np.diff(totals, prepend=0.0))[0]
                for totals in (events[name].to_numpy(float) for name in _TOTALS)
            )
            share = np.divide(100 * hits, queries, out=np.full(_BUCKETS, np.nan), where=queries > 0)
            figure.add_scatter(
                name=plain(run.label),
                x=x,
                y=compact(share),
                mode="lines",
                line={**run_line(index), "width": 2},
                hovertemplate="%{y:.1f} %",
            )
        figure.update_yaxes(range=[0, 101], dtick=25, ticksuffix=" %")
        return figure
