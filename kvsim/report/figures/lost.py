"""Lost concurrency: how many more sequences the wasted bytes could have held."""

from typing import ClassVar

import plotly.graph_objects as go

from kvsim.report.class_bars import Stretches, class_bars
from kvsim.report.classes import LOOKS
from kvsim.report.figure import Figure
from kvsim.report.numbers import figures
from kvsim.results.result import Result
from kvsim.results.summary import RunSummary

_WASTE = ("reserved", "overprovisioned", "rounding", "transient", "metadata", "external", "short")


class Lost(Figure):
    """Sequences that ran on average, and further ones that the wasted bytes could have held."""

    title: ClassVar[str] = "Lost concurrency"
    note: ClassVar[str] = (
        "The sequences that ran at a time, and beside them how many more of the same mean size the "
        "bytes of each kind of waste could have held. kvsim attribute simulates instead of "
        "dividing: memory that nobody waits for is not lost."
    )
    nothing: ClassVar[str] = "No sequence ran, so none was lost."
    classes: ClassVar[bool] = True

    def draw(self, result: Result) -> go.Figure | None:
        """Horizontal bars, with the first run on top."""
        runs = [
            run.summary
            for run in result.runs
            if run.summary.running_mean and run.summary.memory.time_mean.used
        ]
        if not runs:
            return None
        classes = []
        for look in LOOKS:
            if look.name != "used" and look.name not in _WASTE:
                continue
            sequences = [_sequences(run, look.name) for run in runs]
            texts = [figures(each, 2) for each in sequences]
            did = "ran" if look.name == "used" else f"lost: {look.name}"
            hover = f"%{{customdata[1]}} sequences {did}"
            classes.append(Stretches(look, sequences, texts, hover, [[text] for text in texts]))
        labels = [run.label for run in runs]
        figure = class_bars(labels, classes, row_px=64, edges_px=60, gap=0.5)
        figure.update_xaxes(rangemode="tozero", title_text="sequences")
        figure.update_layout(margin_b=52)
        return figure


def _sequences(run: RunSummary, name: str) -> float:
    """Sequences of the run's mean size that would fill the mean bytes of a ledger class."""
    shares = run.memory.time_mean
    return (run.running_mean or 0.0) * shares.of(name) / shares.used
