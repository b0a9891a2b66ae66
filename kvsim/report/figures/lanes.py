"""Requests in each replica of a fleet over time: one row per replica."""

from typing import ClassVar

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvsim.plumbing.units import PS_PER_S
from kvsim.report.figure import INK, Figure, compact, plain, style, time_axis
from kvsim.report.series import Floats, bucketed
from kvsim.results.result import Result

_BUCKETS = 240
_COLUMNS = ["num_running", "num_waiting"]
_LANE_PX = 22
_EDGES_PX = 48
_LETTER_PX, _LONGEST_PX = 7, 240  # of names beside the lanes


class Lanes(Figure):
    """Sequences running and waiting in each replica of a fleet."""

    title: ClassVar[str] = "Load of each replica"
    note: ClassVar[str] = (
        "One lane is one replica; its colour is the number of sequences running or waiting there. "
        "A lane is empty while its replica was not there. The mark is the moment when one replica "
        "had most more than the mean of all."
    )
    nothing: ClassVar[str] = "This scenario has no [fleet], so there is one replica and no router."

    def draw(self, result: Result) -> go.Figure | None:
        """A row per replica, and a mark at the moment when load is most uneven."""
        if not result.fleets:
            return None
        tables = [run.memory for run in result.runs]
        ends = [int(table["end_ps"].iloc[-1]) for table in tables if len(table)]
        if not ends:
            return None
        edges = np.linspace(0, max(ends) / PS_PER_S, _BUCKETS + 1)
        middles = (edges[:-1] + edges[1:]) / 2
        loads = np.zeros((len(tables), _BUCKETS))
        for lane, table in enumerate(tables):
            series = bucketed(table, _COLUMNS, _COLUMNS, _BUCKETS)
            if series is not None:
                in_hand = series.mean.sum(axis=1)
                inside = (middles >= series.edges_s[0]) & (middles <= series.edges_s[-1])
                loads[lane, inside] = np.interp(middles[inside], series.middles_s, in_hand)
        there = _there(result, middles)
        unit_s, axis = time_axis(float(edges[-1]))
        figure = go.Figure()
        labels = [plain(run.label) for run in result.runs]
        # Bars side by side: plotly's basic bundle has no heat map.
        figure.add_bar(
            orientation="h", y=np.repeat(labels, there.sum(axis=1)).tolist(),
            base=compact(np.tile(edges[:-1] / unit_s, len(tables))[there.ravel()]),
            x=compact(np.full(int(there.sum()), edges[1] / unit_s)),
            marker={
                "color": compact(loads[there]), "colorscale": "Blues", "line": {"width": 0},
                "colorbar": {"thickness": 10, "outlinewidth": 0, "nticks": 3},
            },
            hovertemplate="%{y}: %{marker.color:,.1f} at %{base}<extra></extra>",
        )  # fmt: skip
        mean = np.where(there, loads, 0).sum(axis=0) / np.maximum(1, there.sum(axis=0))
        excess = np.where(there, loads - mean, -np.inf)
        worst, bucket = divmod(int(excess.argmax()), _BUCKETS)
        if len(tables) > 1 and excess[worst, bucket] >= 1:
            figure.add_scatter(
                x=[float(middles[bucket] / unit_s)], y=[labels[worst]], mode="markers",
                marker={"symbol": "x", "size": 11, "color": INK},
                hovertemplate=f"{loads[worst, bucket]:,.1f} here, "
                f"{mean[bucket]:,.1f} on average<extra></extra>",
            )  # fmt: skip
        left_px = min(_LONGEST_PX, 12 + _LETTER_PX * max(map(len, labels)))
        margin = {"l": left_px, "r": 12, "t": 8, "b": _EDGES_PX - 8}
        style(figure, height_px=_EDGES_PX + _LANE_PX * len(tables), margin=margin, bargap=0.08)
        figure.update_xaxes(**axis)
        figure.update_yaxes(autorange="reversed", type="category", categoryarray=labels, dtick=1)
        return figure


def _there(result: Result, middles_s: Floats) -> NDArray[np.bool_]:
    """(runs, buckets): whether the run's replica was ready and had not ended in this bucket of
    time.
    """
    there = np.ones((len(result.runs), len(middles_s)), bool)
    at = 0
    for fleet in result.fleets:
        if fleet.changes is not None and len(result.runs) >= at + fleet.replicas:
            for lane, life in enumerate(fleet.changes.lives[: fleet.replicas], at):
                ready_s = np.inf if life.ready_s is None else life.ready_s
                ended_s = np.inf if life.ended_s is None else life.ended_s
                there[lane] = (middles_s >= ready_s) & (middles_s <= ended_s)
        at += fleet.replicas
    return there
