"""Where the memory went on average: one stacked bar a run, all classes summing to the pool."""

from typing import TYPE_CHECKING, ClassVar

from kvsim.report.classes import LOOKS, hatch
from kvsim.report.figure import PAPER, Figure, heading, plain, style
from kvsim.report.numbers import percent, size
from kvsim.results.result import Result

if TYPE_CHECKING:
    import plotly.graph_objects as go

_ROW_PX = 74
_TICKS = [0.0, 0.25, 0.5, 0.75, 1.0]


class Shares(Figure):
    """The time-mean of the ledger, run beside run."""

    title: ClassVar[str] = "The pool, on average"
    note: ClassVar[str] = (
        "Each bar is the whole pool, averaged over the run. Blue did the work, the warm colours "
        "were held without working, the greys were free."
    )
    nothing: ClassVar[str] = "No run took any time, so there is no average to draw."

    def draw(self, result: Result) -> "go.Figure | None":
        """Horizontal bars, the first run on top; each bar's segments sum to 1."""
        import plotly.graph_objects as go

        runs = [run for run in result.runs if any(run.summary["memory"]["time_mean"].values())]
        if not runs:
            return None
        figure = go.Figure()
        for look in LOOKS:
            memory = [run.summary["memory"] for run in runs]
            shares = [entry["time_mean"][look.name] for entry in memory]
            if not any(shares):
                continue
            figure.add_bar(
                name=look.name,
                orientation="h",
                x=shares,
                y=list(range(len(runs))),
                marker={
                    "color": look.colour,
                    "line": {"color": PAPER, "width": 1},
                    "pattern": hatch(look),
                },
                text=[percent(share) for share in shares],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                textfont={"color": look.ink},
                customdata=[
                    [plain(run.label), percent(share), size(share * entry["capacity_bytes"])]
                    for run, share, entry in zip(runs, shares, memory, strict=True)
                ],
                hovertemplate=(
                    f"<b>%{{customdata[0]}}</b><br>{look.name}: %{{customdata[1]}} of the pool, "
                    "%{customdata[2]}<extra></extra>"
                ),
            )
        style(
            figure,
            height_px=40 + _ROW_PX * len(runs),
            barmode="stack",
            bargap=0.45,
            uniformtext={"minsize": 11, "mode": "hide"},
            margin={"l": 12, "r": 20, "t": 4, "b": 36},
            annotations=[
                {
                    **heading(run.label, axis="y", above_px=0),
                    "y": index - 0.29,
                    "yref": "y",
                }
                for index, run in enumerate(runs)
            ],
        )
        figure.update_xaxes(
            range=[0, 1],
            ticklabeloverflow="allow",
            tickvals=_TICKS,
            ticktext=[percent(tick) for tick in _TICKS],
        )
        figure.update_yaxes(visible=False, autorange=False, range=[len(runs) - 0.6, -0.75])
        return figure
