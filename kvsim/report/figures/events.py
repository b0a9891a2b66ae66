"""Preemptions, recomputed tokens, and bytes copied and swapped, over time."""

from typing import ClassVar

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvsim.plumbing.units import PS_PER_S
from kvsim.report.classes import run_line
from kvsim.report.figure import Figure, compact, plain
from kvsim.report.numbers import seconds
from kvsim.report.panels import over_time, panels
from kvsim.results.result import Result, Run

_BUCKETS = 240
_PANEL_PX = 120
_PANELS = {
    "preemptions": ("preemptions", 1.0),
    "recomputed_tokens": ("tokens computed again", 1.0),
    "copied_bytes": ("GiB copied on the device", 2.0**30),
    "swapped_bytes": ("GiB swapped to the host and back", 2.0**30),
}


class Events(Figure):
    """Effects of memory pressure over time: preemptions and evictions."""

    title: ClassVar[str] = "What was lost and moved, and when"
    note: ClassVar[str] = (
        "Sums over buckets of time, as long as each panel says; only what happened in some run is "
        "drawn."
    )
    nothing: ClassVar[str] = (
        "Nothing was preempted, computed again, copied or swapped, or the runs were not traced."
    )
    lines: ClassVar[bool] = True

    def draw(self, result: Result) -> go.Figure | None:
        """A panel for each quantity that is not always 0, with a line per run."""
        ends = [int(run.memory["end_ps"].max()) for run in result.runs if len(run.memory)]
        if not ends or max(ends) <= 0:
            return None
        edges = np.linspace(0, max(ends), _BUCKETS + 1)
        sums = {name: [_sums(run, name, edges) for run in result.runs] for name in _PANELS}
        found = {name: each for name, each in sums.items() if any(run.any() for run in each)}
        if not found:
            return None
        each_s = seconds(max(ends) / _BUCKETS / PS_PER_S)
        names = [f"{_PANELS[name][0]}, in each {each_s}" for name in found]
        figure = panels(names, panel_px=_PANEL_PX, gap_px=30)
        unit_s = over_time(figure, max(ends) / PS_PER_S)
        x = compact((edges[:-1] + edges[1:]) / 2 / PS_PER_S / unit_s)
        for row, (name, each) in enumerate(found.items(), start=1):
            for index, run in enumerate(result.runs):
                figure.add_scatter(
                    name=plain(run.label),
                    x=x,
                    y=compact(each[index] / _PANELS[name][1]),
                    mode="lines",
                    line={**run_line(index), "width": 1.5, "shape": "hvh"},
                    hovertemplate="%{y:,.4~g}",
                    row=row,
                    col=1,
                )
        figure.update_yaxes(rangemode="tozero", nticks=4)
        return figure


def _sums(run: Run, name: str, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """The amount of the event quantity `name` in each bucket of time."""
    events = run.table("events")
    if events is None or events.empty:
        return np.zeros(len(edges) - 1)
    amounts = np.diff(events[name].to_numpy(np.float64), prepend=0.0)
    sums, _ = np.histogram(events["time_ps"].to_numpy(np.float64), edges, weights=amounts)
    return np.asarray(sums, dtype=np.float64)
