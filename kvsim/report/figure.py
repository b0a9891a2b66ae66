"""Base class of the page's figures, and their shared style."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.options import Options
from kvsim.report.names import named
from kvsim.results.result import Result

if TYPE_CHECKING:
    import plotly.graph_objects as go

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, FAINT_INK, GRID = "#1f2328", "#59636e", "#e4e7eb"
# Not pure white, which is the ink on dark fills: a dark page puts its own paper for this one.
PAPER = "#fefefe"
# What a dark page puts for each.
DARK_INKS = {INK: "#e6edf3", FAINT_INK: "#9aa4af", GRID: "#2d333b", PAPER: "#0f1419"}
CLEAR = "rgba(0,0,0,0)"


class Figure(Options):
    """One figure, drawn from a result's tables.

    title: heading. note: a sentence on how to read it. nothing: text that the page shows if there
    is nothing to draw. span: full or half width on a wide screen. lines: whether it draws a line
    per run; classes: whether it fills areas in the colours of ledger classes. With either, the page
    puts a legend above the figure.
    """

    title: ClassVar[str]
    note: ClassVar[str]
    nothing: ClassVar[str]
    span: ClassVar[Literal["full", "half"]] = "full"
    lines: ClassVar[bool] = False
    classes: ClassVar[bool] = False

    @abstractmethod
    def draw(self, result: Result) -> "go.Figure | None":
        """Draw the figure; None if there is nothing to draw. The result is not changed."""
        raise NotImplementedError(type(self).__name__)  # every subclass overrides this


def style(figure: "go.Figure", *, height_px: int, **layout: Any) -> None:
    """Give `figure` the shared style: font, colours, margins. It has no legend, as the page draws
    it.
    """
    figure.update_layout(
        template="none",
        font={"family": FONT, "size": 13, "color": INK},
        height=height_px,
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        hoverlabel={
            "bgcolor": PAPER,
            "bordercolor": FAINT_INK,
            "font": {"family": FONT, "color": INK},
        },
        showlegend=False,
        dragmode=False,
    )
    figure.update_layout({"margin": {"l": 52, "r": 12, "t": 24, "b": 34}, **layout})
    title = {"color": FAINT_INK, "size": 13}
    figure.update_xaxes(gridcolor=GRID, linecolor=GRID, zeroline=False, ticks="outside",
                        tickcolor=GRID, title_font=title, title_standoff=6)  # fmt: skip
    figure.update_yaxes(gridcolor=GRID, linecolor=GRID, zeroline=False, title_font=title)


def plain(text: str) -> str:
    """A user's text escaped for plotly, which would read tags and entities in it."""
    name = named(text)
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        name = name.replace(sign, entity)
    return name


def heading(text: str, *, axis: str, above_px: int = 4) -> dict[str, Any]:
    """A panel's title as an annotation above its upper left corner; `axis` is `y`, `y2`, ..."""
    number = axis.removeprefix("y")
    return {
        "text": f"<b>{plain(text)}</b>",
        "x": 0,
        "xref": f"x{number} domain",
        "xanchor": "left",
        "y": 1,
        "yref": f"{axis} domain",
        "yanchor": "bottom",
        "yshift": above_px,
        "showarrow": False,
        "font": {"size": 13},
    }


def time_axis(span_s: float) -> tuple[float, dict[str, Any]]:
    """An axis of time from 0 to `span_s`: seconds per unit of the axis, and plotly's options."""
    units = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
    unit_s, name = next((unit for unit in units if span_s >= 3 * unit[0]), (1e-3, "ms"))
    return unit_s, {
        "range": [0, span_s / unit_s],
        "ticksuffix": f" {name}",
        "hoverformat": ".4~g",
    }


def round_times(longest_s: float, most: int = 5) -> dict[str, Any]:
    """Plotly's options for an axis in seconds with at most `most` ticks at round numbers of one
    unit.
    """
    unit_s, axis = time_axis(longest_s)
    steps = (size * 10.0**power for power in range(-4, 9) for size in (1, 2, 5))
    step = next(each for each in steps if longest_s / unit_s / each <= most)
    ticks = [step * at for at in range(int(longest_s / unit_s / step) + 1)]
    return {
        "tickvals": [tick * unit_s for tick in ticks],
        "ticktext": [f"{tick:,.4g}{axis['ticksuffix']}" for tick in ticks],
    }


def compact(values: NDArray[Any]) -> NDArray[np.float32]:
    """The values in single precision: enough for a screen, and half the bytes on the page."""
    return np.asarray(values, dtype=np.float32)
