"""Mean use of the pool: a stacked bar per run, the ledger classes summing to the pool's size."""

from typing import TYPE_CHECKING, ClassVar

from kvsim.report.class_bars import Stretches, class_bars
from kvsim.report.classes import LOOKS
from kvsim.report.figure import Figure
from kvsim.report.numbers import percent, size
from kvsim.results.result import Result

if TYPE_CHECKING:
    import plotly.graph_objects as go

_TICKS = [0.0, 0.25, 0.5, 0.75, 1.0]


class Shares(Figure):
    """The time-mean of the ledger, as a bar per run."""

    title: ClassVar[str] = "The pool, on average"
    note: ClassVar[str] = (
        "Each bar is the whole pool, averaged over the run. Blue is in use or cached, "
        "warm colours are held and not in use, grey is free."
    )
    nothing: ClassVar[str] = "No run took any time, so there is no average to draw."
    classes: ClassVar[bool] = True

    def draw(self, result: Result) -> "go.Figure | None":
        """Horizontal bars with the first run on top; the segments of a bar sum to 1."""
        runs = [run for run in result.runs if any(run.summary.memory.time_mean.values())]
        if not runs:
            return None
        memory = [run.summary.memory for run in runs]
        classes = []
        for look in LOOKS:
            shares = [entry.time_mean.of(look.name) for entry in memory]
            texts = [percent(share) for share in shares]
            sizes = [
                size(share * entry["capacity_bytes"])
                for share, entry in zip(shares, memory, strict=True)
            ]
            hover = f"{look.name}: %{{customdata[1]}} of the pool, %{{customdata[2]}}"
            details = list(zip(texts, sizes, strict=True))
            classes.append(Stretches(look, shares, texts, hover, details))
        labels = [run.label for run in runs]
        figure = class_bars(labels, classes, row_px=58, edges_px=40, gap=0.45)
        figure.update_xaxes(
            range=[0, 1],
            ticklabeloverflow="allow",
            tickvals=_TICKS,
            ticktext=[percent(tick) for tick in _TICKS],
        )
        return figure
