"""A stacked horizontal bar per run with a segment per ledger class; the first run is on top."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvsim.report.classes import ClassLook, hatch
from kvsim.report.figure import PAPER, heading, plain, style

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Stretches(NamedTuple):
    """The segments of one ledger class in the bars of all runs.

    values, texts: one per run. hover: text on mouse-over, as a plotly template in which
    `%{customdata[0]}` is the run and the following entries are its `details`.
    """

    look: ClassLook
    values: Sequence[float]
    texts: Sequence[str]
    hover: str
    details: Sequence[Sequence[str]]


def class_bars(
    labels: Sequence[str], classes: Sequence[Stretches], *, row_px: int, edges_px: int, gap: float
) -> "go.Figure":
    """Draw the bars. row_px: height of a run's row. gap: the share of a row that holds the run's
    label.
    """
    import plotly.graph_objects as go  # a text in a terminal draws none

    figure = go.Figure()
    for look, values, texts, hover, details in classes:
        if not any(values):
            continue
        figure.add_bar(
            name=look.name,
            orientation="h",
            x=values,
            y=list(range(len(labels))),
            marker={
                "color": look.colour,
                "line": {"color": PAPER, "width": 1},
                "pattern": hatch(look),
            },
            text=texts,
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": look.ink},
            customdata=[[plain(label), *more] for label, more in zip(labels, details, strict=True)],
            hovertemplate=f"<b>%{{customdata[0]}}</b><br>{hover}<extra></extra>",
        )
    style(
        figure,
        height_px=edges_px + row_px * len(labels),
        barmode="stack",
        bargap=gap,
        uniformtext={"minsize": 11, "mode": "hide"},
        margin={"l": 12, "r": 20, "t": 4, "b": 36},
        annotations=[
            {
                **heading(label, axis="y", above_px=0),
                "y": index - (1 - gap) / 2 - 0.02,
                "yref": "y",
            }
            for index, label in enumerate(labels)
        ],
    )
    figure.update_yaxes(visible=False, autorange=False, range=[len(labels) - 0.6, -0.75])
    return figure


def put_key_below(figure: "go.Figure", room_px: int) -> None:
    """Add a legend of the ledger classes under the bars. room_px: height of the axis and the
    legend, which wraps on a phone.
    """
    below = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
    figure.update_layout(
        showlegend=True, legend={**below, "traceorder": "normal"}, margin={"b": room_px}
    )
