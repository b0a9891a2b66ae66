"""A single figure of the report, for a notebook or a paper."""

from typing import TYPE_CHECKING

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.extras import need
from kvsim.report.figures import FIGURES
from kvsim.results.result import Result

if TYPE_CHECKING:
    import plotly.graph_objects as go

_HEIGHT_PX = 450  # of a figure that does not say
_HEAD_PX = 36
_ENTRY_PX = 21  # of the legend
_SIDE_PX = 40  # the first label of an axis is centred at its end


def figure(result: Result, name: str) -> "go.Figure":
    """The figure `name` of a result's page as a plotly figure: `shares`, `ledger`, `ttft`, ...

    It has the report's look and a legend. Raises InputError for a name that no figure has, and
    where this result has nothing to draw.
    """
    need("plotly", "pandas", where=f"figure {name}")
    drawing = FIGURES.parse({"kind": name}, "figure")
    found = drawing.draw(result)
    if found is None:
        raise InputError(
            "nothing to draw", where=f"figure {name}", value=drawing.nothing.rstrip(".")
        )
    _give_head_and_legend(found, drawing.title)
    return found


def _give_head_and_legend(figure: "go.Figure", title: str) -> None:
    """Add the title that the page shows, and a legend.

    A name has one entry in the legend, however many panels draw it; no entry is cut.
    """
    names: set[str] = set()
    for trace in figure.data:
        if trace.showlegend is False or trace.name is None:
            continue
        trace.update(legendgroup=trace.name, showlegend=trace.name not in names)
        names.add(trace.name)
    margin = figure.layout.margin
    height = (figure.layout.height or _HEIGHT_PX) + _HEAD_PX
    figure.update_layout(
        showlegend=True,
        title={"text": title, "x": 0.0, "xref": "paper", "yref": "container", "y": 1.0,
               "yanchor": "top", "pad": {"t": 12}},
        height=max(height, 2 * _HEAD_PX + _ENTRY_PX * len(names)),
        legend={"tracegroupgap": 0},
        margin={"t": (margin.t or 0) + _HEAD_PX, "l": max(margin.l or 0, _SIDE_PX)},
    )  # fmt: skip
