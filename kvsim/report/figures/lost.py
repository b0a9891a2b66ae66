"""Lost concurrency: what else would have fitted into the bytes that did no work."""

from typing import TYPE_CHECKING, Any, ClassVar

from kvsim.report.classes import LOOKS, hatch
from kvsim.report.figure import PAPER, Figure, heading, plain, style
from kvsim.report.numbers import figures
from kvsim.results.result import Result

if TYPE_CHECKING:
    import plotly.graph_objects as go

_ROW_PX = 64
_WASTE = ("reserved", "overprovisioned", "rounding", "transient", "metadata", "external", "short")


class Lost(Figure):
    """Sequences that ran, and those that the wasted bytes would have held."""

    title: ClassVar[str] = "Lost concurrency"
    note: ClassVar[str] = (
        "The sequences that ran at a time, and beside them how many more of the same mean size the "
        "bytes of each kind of waste could have held. kvsim attribute simulates instead of "
        "dividing: memory that nobody waits for is not lost."
    )
    nothing: ClassVar[str] = "No sequence ran, so none was lost."

    def draw(self, result: Result) -> "go.Figure | None":
        """Horizontal bars, the first run on top."""
        import plotly.graph_objects as go

        runs = [
            run.summary
            for run in result.runs
            if run.summary["running_mean"] and run.summary["memory"]["time_mean"]["used"]
        ]
        if not runs:
            return None
        figure = go.Figure()
        for look in LOOKS:
            if look.name != "used" and look.name not in _WASTE:
                continue
            sequences = [_sequences(run, look.name) for run in runs]
            if not any(sequences):
                continue
            figure.add_bar(
                name=look.name,
                orientation="h",
                x=sequences,
                y=list(range(len(runs))),
                marker={
                    "color": look.colour,
                    "line": {"color": PAPER, "width": 1},
                    "pattern": hatch(look),
                },
                text=[figures(each, 2) for each in sequences],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                textfont={"color": look.ink},
                customdata=[
                    [plain(run["label"]), figures(each, 2)]
                    for run, each in zip(runs, sequences, strict=True)
                ],
                hovertemplate=(
                    "<b>%{customdata[0]}</b><br>%{customdata[1]} sequences "
                    + ("ran" if look.name == "used" else f"lost: {look.name}")
                    + "<extra></extra>"
                ),
            )
        style(
            figure,
            height_px=44 + _ROW_PX * len(runs),
            barmode="stack",
            bargap=0.5,
            uniformtext={"minsize": 11, "mode": "hide"},
            margin={"l": 12, "r": 20, "t": 4, "b": 36},
            annotations=[
                {**heading(run["label"], axis="y", above_px=0), "y": index - 0.27, "yref": "y"}
                for index, run in enumerate(runs)
            ],
        )
        figure.update_xaxes(rangemode="tozero")
        figure.update_yaxes(visible=False, autorange=False, range=[len(runs) - 0.6, -0.75])
        return figure


def _sequences(run: dict[str, Any], name: str) -> float:
    """Sequences of the run's mean size that the bytes of a class hold."""
    shares: dict[str, float] = run["memory"]["time_mean"]
    return float(run["running_mean"]) * shares[name] / shares["used"]
