"""Running and waiting requests, memory in use and time to first token over time: a line per run."""

from typing import ClassVar, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvsim.plumbing.units import PS_PER_S
from kvsim.report.bottleneck import HELD
from kvsim.report.classes import run_line
from kvsim.report.figure import Figure, compact, plain
from kvsim.report.latency import finished, ttft_s
from kvsim.report.panels import over_time, panels
from kvsim.report.series import Buckets, bucketed
from kvsim.results.result import Result, Run

_BUCKETS = 240
_COLUMNS = ["num_running", "num_waiting"]
_WAIT_BUCKETS = 60
_LINEAR = 30.0  # times the lowest wait: beyond it lines on a linear axis lie on its floor


class Concurrency(Figure):
    """Sequences running, requests waiting, the pool in use and time to first token, over time."""

    title: ClassVar[str] = "Running, waiting, memory in use and time to first token"
    note: ClassVar[str] = (
        "As on a server's dashboard. Lines are means over equal parts of the time, bands the "
        "lowest and highest in each. In use is what sequences hold, without cached blocks. Time to "
        "first token is the median over first tokens of each part."
    )
    nothing: ClassVar[str] = "No step ran, so no sequence did."
    lines: ClassVar[bool] = True

    def draw(self, result: Result) -> go.Figure | None:
        """Four panels with a line per run: three from the memory series, and one of times to first
        token.
        """
        drawn = [
            (index, run, series)
            for index, run in enumerate(result.runs)
            if (series := _series(run)) is not None
        ]
        if not drawn:
            return None
        names = ["running", "waiting", "KV memory in use, %"]
        waits = {index: found for index, run, _ in drawn if len((found := _waits(run)).median_s)}
        if waits:
            names.append("time to first token, median, s")
        figure = panels(names, panel_px=130, gap_px=38)
        unit_s = over_time(figure, max(series.edges_s[-1] for _, _, series in drawn))
        for index, run, series in drawn:
            line = run_line(index)
            x = compact(series.middles_s / unit_s)
            for column in range(series.mean.shape[1]):
                for edge, fill in ((series.low, None), (series.high, "tonexty")):
                    figure.add_scatter(
                        x=x, y=compact(edge[:, column]), mode="lines", line={"width": 0},
                        fill=fill, fillcolor=_faint(line["color"]), hoverinfo="skip",
                        row=column + 1, col=1,
                    )  # fmt: skip
                figure.add_scatter(
                    name=plain(run.label), x=x, y=compact(series.mean[:, column]), mode="lines",
                    line={**line, "width": 2},
                    hovertemplate="%{y:,.1f}", row=column + 1, col=1,
                )  # fmt: skip
            if index in waits:
                found = waits[index]
                figure.add_scatter(
                    name=plain(run.label), x=compact(found.middles_s / unit_s),
                    y=compact(found.median_s), mode="lines", line={**line, "width": 2},
                    hovertemplate="%{y:,.3~g} s", row=len(names), col=1,
                )  # fmt: skip
        figure.update_yaxes(rangemode="tozero", tickformat=",~g")
        every = np.concatenate([found.median_s for found in waits.values()] or [np.zeros(1)])
        if 0 < every.min() * _LINEAR < every.max():
            figure.update_yaxes(type="log", dtick=1, row=len(names), col=1)
        return figure


class _Waits(NamedTuple):
    """Median time to first token in buckets of equal width in time; buckets without requests are
    left out.
    """

    middles_s: NDArray[np.float64]
    median_s: NDArray[np.float64]


def _series(run: Run) -> Buckets | None:
    """Sequences running, requests waiting, and percent of the pool that sequences hold."""
    memory, ends = run.memory, [f"{name}_end_bytes" for name in HELD]
    percent = 100 / run.summary.memory.capacity_bytes
    memory = memory.assign(
        held=memory[[f"{name}_bytes" for name in HELD]].sum(axis=1) * percent,
        held_end=memory[ends].sum(axis=1) * percent,
    )
    return bucketed(memory, [*_COLUMNS, "held"], [*_COLUMNS, "held_end"], _BUCKETS)


def _waits(run: Run) -> _Waits:
    """Median time to first token of finished requests, by the time of their first token."""
    waits_s = ttft_s(run.requests)
    at_s = finished(run.requests)["first_token_ps"].to_numpy(np.float64) / PS_PER_S
    if not len(waits_s):
        return _Waits(at_s, waits_s)
    width_s = (max(run.memory["end_ps"].max() / PS_PER_S, at_s.max()) or 1.0) / _WAIT_BUCKETS
    bucket = np.minimum((at_s / width_s).astype(np.int64), _WAIT_BUCKETS - 1)
    filled = np.unique(bucket)
    medians = np.array([np.median(waits_s[bucket == each]) for each in filled])
    return _Waits((filled + 0.5) * width_s, medians)


def _faint(colour: str) -> str:
    """The colour `#rrggbb` at one sixth of its opacity."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.17)"
