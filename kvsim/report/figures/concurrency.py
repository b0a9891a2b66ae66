"""How many sequences ran and how many waited, over time: one line a run."""

from typing import ClassVar

import plotly.graph_objects as go

from kvsim.report.classes import run_line
from kvsim.report.figure import Figure, compact, plain
from kvsim.report.panels import over_time, panels
from kvsim.report.series import bucketed
from kvsim.results.result import Result

_BUCKETS = 240
_COLUMNS = ["num_running", "num_waiting"]


class Concurrency(Figure):
    """Sequences running, and requests waiting, over time."""

    title: ClassVar[str] = "Sequences running and waiting"
    note: ClassVar[str] = (
        "A run holds more sequences when more come, or when each one takes longer; the queue shows "
        "which. Lines are means over buckets of time, bands the lowest and highest in each."
    )
    nothing: ClassVar[str] = "No step ran, so no sequence did."
    lines: ClassVar[bool] = True

    def draw(self, result: Result) -> go.Figure | None:
        """Two panels, running above waiting, all runs in each."""
        drawn = [
            (index, run.label, series)
            for index, run in enumerate(result.runs)
            if (series := bucketed(run.memory, _COLUMNS, _COLUMNS, _BUCKETS)) is not None
        ]
        if not drawn:
            return None
        figure = panels(["running", "waiting"], panel_px=187, gap_px=38)
        unit_s = over_time(figure, max(series.edges_s[-1] for _, _, series in drawn))
        for index, label, series in drawn:
            line = run_line(index)
            x = compact(series.middles_s / unit_s)
            for column in range(len(_COLUMNS)):
                for edge, fill in ((series.low, None), (series.high, "tonexty")):
                    figure.add_scatter(
                        x=x, y=compact(edge[:, column]), mode="lines", line={"width": 0},
                        fill=fill, fillcolor=_faint(line["color"]), hoverinfo="skip",
                        row=column + 1, col=1,
                    )  # fmt: skip
                figure.add_scatter(
                    name=plain(label), x=x, y=compact(series.mean[:, column]), mode="lines",
                    line={**line, "width": 2},
                    hovertemplate="%{y:,.1f}", row=column + 1, col=1,
                )  # fmt: skip
        figure.update_yaxes(rangemode="tozero", tickformat=",~g")
        return figure


def _faint(colour: str) -> str:
    """`#rrggbb` at one sixth of its strength."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.17)"
