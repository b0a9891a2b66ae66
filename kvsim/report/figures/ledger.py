"""The ledger over time: a panel per run, with the ten classes stacked up to the pool's size."""

from typing import ClassVar

import plotly.graph_objects as go

from kvsim.memory.ledger import CLASSES
from kvsim.plumbing.units import PS_PER_S
from kvsim.report.classes import LOOKS, hatch
from kvsim.report.figure import INK, Figure, compact
from kvsim.report.panels import over_time, panels
from kvsim.report.series import bucketed
from kvsim.results.result import Result, Run

_BUCKETS = 480
_PANEL_PX = 250
_HELD = [look.name for look in LOOKS if look.family != "free"]


class Ledger(Figure):
    """Stacked areas of the ten ledger classes over time."""

    title: ClassVar[str] = "The pool over time"
    note: ClassVar[str] = (
        "Every instant sums to the pool. Each point is the mean over its bucket of time, so areas "
        "are true; the thin line is the most that was held at any moment of the bucket, so no peak "
        "is lost. Point at it for the numbers."
    )
    nothing: ClassVar[str] = "No step ran, so the pool never held anything."
    classes: ClassVar[bool] = True

    def draw(self, result: Result) -> go.Figure | None:
        """A panel per run with a shared axis of time, in percent of the pool."""
        runs = [run for run in result.runs if len(run.memory)]
        ends = [int(run.memory["end_ps"].max()) for run in runs]
        if not ends or max(ends) <= 0:
            return None
        figure = panels([run.label for run in runs], panel_px=_PANEL_PX, gap_px=34)
        unit_s = over_time(figure, max(ends) / PS_PER_S)
        for row, run in enumerate(runs, start=1):
            _panel(figure, run, row, unit_s)
        figure.update_xaxes(showgrid=False)
        figure.update_yaxes(range=[0, 100], dtick=25, ticksuffix=" %")
        return figure


def _panel(figure: go.Figure, run: Run, row: int, unit_s: float) -> None:
    """Add one run's ledger classes, and the line of its peak allocation, to panel `row`."""
    capacity = run.summary.memory.capacity_bytes
    memory = run.memory.assign(
        held_bytes=run.memory[[f"{name}_bytes" for name in _HELD]].sum(axis=1),
        held_end_bytes=run.memory[[f"{name}_end_bytes" for name in _HELD]].sum(axis=1),
    )
    names = [*CLASSES, "held"]
    series = bucketed(
        memory, [f"{n}_bytes" for n in names], [f"{n}_end_bytes" for n in names], _BUCKETS
    )
    if series is None:
        return
    mean, high = (100 * part / capacity for part in (series.mean, series.high))
    x = compact(series.middles_s / unit_s)
    for look in LOOKS:
        column = names.index(look.name)
        if not high[:, column].any():
            continue
        figure.add_scatter(
            name=look.name,
            x=x,
            y=compact(mean[:, column]),
            customdata=compact(high[:, [column]]),
            mode="none",
            line={"shape": "hvh"},
            stackgroup=f"{row}",
            fillcolor=look.colour,
            fillpattern=hatch(look),
            hovertemplate="%{y:.1f} % (at most %{customdata[0]:.1f} %)",
            row=row,
            col=1,
        )  # fmt: skip
    figure.add_scatter(
        name="held at most",
        x=x,
        y=compact(high[:, names.index("held")]),
        mode="lines",
        line={"shape": "hvh", "width": 0.8, "color": INK},
        hoverinfo="skip",
        row=row,
        col=1,
    )
