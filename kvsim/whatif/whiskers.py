"""One number a row with its interval: which row is best is seen at once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvsim.report.figure import FAINT_INK, PAPER, heading, plain, style

if TYPE_CHECKING:
    import plotly.graph_objects as go

_ROW_PX, _EDGES_PX = 46, 64
_BEYOND = 2.0  # times the largest mean: where a longer interval is cut off
GOOD, PLAIN = "#0072b2", "#8c959f"


class Whisker(NamedTuple):
    """A row. low, high: its interval's ends, or the mean twice. text: under the pointer and beside
    the row's name. good: whether it is what one acts on.
    """

    label: str
    mean: float
    low: float
    high: float
    text: str
    good: bool


def whiskers(rows: Sequence[Whisker], title: str) -> "go.Figure | None":
    """A dot and its interval each row, from 0 on; None without a row. An interval that is much
    longer than every mean leaves the figure. title: of the axis, with its unit.
    """
    import plotly.graph_objects as go

    if not rows:
        return None
    figure = go.Figure()
    places = list(range(len(rows)))
    for good, colour in ((True, GOOD), (False, PLAIN)):
        at = [place for place in places if rows[place].good == good]
        shown = [rows[place] for place in at]
        figure.add_scatter(
            x=[row.mean for row in shown], y=at, mode="markers",
            marker={"color": colour, "size": 11, "symbol": "circle" if good else "circle-open"},
            error_x={
                "array": [row.high - row.mean or None for row in shown], "symmetric": False,
                "arrayminus": [row.mean - row.low or None for row in shown],
                "thickness": 2, "width": 5,
            },
            customdata=[row.text for row in shown], hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    names = [
        {**heading("", axis="y", above_px=0), "text": f"<b>{plain(row.label)}</b>: {row.text}",
         "y": place - 0.28, "yref": "y", "font": {"size": 12}, "bgcolor": PAPER}
        for place, row in zip(places, rows, strict=True)
    ]  # fmt: skip
    style(figure, height_px=_EDGES_PX + _ROW_PX * len(rows), annotations=names,
          margin={"l": 16, "r": 16, "t": 8, "b": 48}, hovermode="closest")  # fmt: skip
    most = max(abs(row.mean) for row in rows) or 1.0
    low, high = (bound(end for row in rows for end in (0.0, row.low, row.high))
                 for bound in (min, max))  # fmt: skip
    low, high = max(low, -_BEYOND * most), min(high, _BEYOND * most)
    room = 0.04 * (high - low)
    figure.update_xaxes(range=[low - room, high + room], title_text=title, zeroline=True,
                        zerolinecolor=FAINT_INK, tickformat=",~g")  # fmt: skip
    figure.update_yaxes(visible=False, range=[len(rows) - 0.6, -0.9])
    return figure
