"""A figure of one number for each row, with its interval, that shows which row is best."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kvsim.report import numbers
from kvsim.report.figure import FAINT_INK, PAPER, heading, plain, style
from kvsim.report.wrapping import by_words

if TYPE_CHECKING:
    import plotly.graph_objects as go

_ROW_PX, _LINE_PX, _ABOVE_PX, _EDGES_PX = 46, 15, 13, 64
_LETTERS = 42  # of a row's name and number, that a line of a phone holds
_BEYOND = 4.0  # times the largest mean: where a longer interval is cut off
GOOD, PLAIN = "#0072b2", "#8c959f"


class Whisker(NamedTuple):
    """One row of the figure.

    low, high: ends of its interval, or the mean twice. text: tooltip, also shown next to the row's
    name. good: whether it is the recommended one.
    """

    label: str
    mean: float
    low: float
    high: float
    text: str
    good: bool


def whiskers(rows: Sequence[Whisker], title: str) -> "go.Figure | None":
    """A dot and its interval each row, from 0 on; None without a row. An interval that is much
    longer than every mean is cut off, and an arrow names its end. title: of the axis, with its
    unit.
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
    most = max(abs(row.mean) for row in rows) or 1.0
    low, high = (bound(end for row in rows for end in (0.0, row.low, row.high))
                 for bound in (min, max))  # fmt: skip
    low, high = max(low, -_BEYOND * most), min(high, _BEYOND * most)
    room = 0.04 * (high - low)
    texts = _names(rows)
    num_lines = max(text.count("<br>") for text in texts) + 1
    row_px = _ROW_PX + _LINE_PX * (num_lines - 1)
    names = [
        {**heading("", axis="y", above_px=_ABOVE_PX), "text": text, "y": place, "yref": "y",
         "font": {"size": 12}, "bgcolor": PAPER, "align": "left"}
        for place, text in enumerate(texts)
    ]  # fmt: skip
    style(figure, height_px=_EDGES_PX + row_px * len(rows),
          annotations=[*names, *_cut(rows, low - room, high + room)],
          margin={"l": 16, "r": 16, "t": 8, "b": 48}, hovermode="closest")  # fmt: skip
    figure.update_xaxes(range=[low - room, high + room], title_text=title, zeroline=True,
                        zerolinecolor=FAINT_INK, tickformat=",~g")  # fmt: skip
    top = 2 * _ABOVE_PX + _LINE_PX * num_lines
    figure.update_yaxes(visible=False, range=[len(rows) - 0.6, -top / row_px])
    return figure


def _names(rows: Sequence[Whisker]) -> list[str]:
    """Name and number of each row: on lines of their own where they are too long for a phone."""
    whole = [f"{row.label}: {row.text}" for row in rows]
    if max(map(len, whole)) <= _LETTERS:
        return [f"<b>{plain(row.label)}</b>: {row.text}" for row in rows]
    return [
        "<br>".join(
            [*(f"<b>{plain(line)}</b>" for line in by_words(row.label, _LETTERS).split("\n")),
             *by_words(row.text, _LETTERS).split("\n")]
        )
        for row in rows
    ]  # fmt: skip


def _cut(rows: Sequence[Whisker], left: float, right: float) -> Iterator[dict[str, Any]]:
    """Marks at the edge that an interval crosses: an arrow, and the interval's end."""
    for place, row in enumerate(rows):
        ends = (
            (row.low < left, left, "left", f"\N{LEFTWARDS ARROW} to {numbers.figures(row.low)}"),
            (
                row.high > right,
                right,
                "right",
                f"to {numbers.figures(row.high)} \N{RIGHTWARDS ARROW}",
            ),
        )
        for cut, edge, anchor, text in ends:
            if cut:
                yield {"text": text, "x": edge, "xref": "x", "xanchor": anchor, "y": place,
                       "yref": "y", "yanchor": "middle", "showarrow": False,
                       "font": {"size": 12}, "bgcolor": PAPER}  # fmt: skip
