"""Tables for a terminal, split into several if the columns do not fit the width."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvsim.report.wrapping import cells, wrapped

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_GAP = 2  # between two columns
_NAME_CAPS = range(40, 11, -1)
_NAME_CAP_SPLIT = 24
_WIDEST_HEAD = 24


class Cell(NamedTuple):
    """A text with a style of rich; square brackets in the text are not markup."""

    text: str
    style: str = ""


class Row(NamedTuple):
    """A row of a table: its name, and one cell per column. section: draw a rule above it."""

    name: Cell
    cells: Sequence[Cell]
    section: bool = False


def tables(first: str, heads: Sequence[str], rows: Sequence[Row], width: int) -> Iterator["Table"]:
    """One table, or several if not all columns fit `width`; each repeats the first column.

    No cell is cut. Text wraps between words (or at separators of a key or a path), and inside a
    word only if it is wider than its column.
    """
    heads = [wrapped(head, _WIDEST_HEAD) for head in heads]
    widths = [
        min(max(cells(head), *(cells(row.cells[at].text) for row in rows), 1), width - 8)
        for at, head in enumerate(heads)
    ]
    room = width - sum(widths) - _GAP * len(widths)
    cap = next((cap for cap in _NAME_CAPS if cap <= room), _NAME_CAP_SPLIT)
    names = [wrapped(row.name.text, cap) for row in rows]
    named = max((cells(text) for text in (first, *names)), default=0)
    if named <= room:
        yield _table(first, heads, names, rows, slice(0, len(heads)))
        return
    start = 0
    while True:
        end, used = start, named
        while end < len(heads) and (end == start or used + _GAP + widths[end] <= width):
            used += _GAP + widths[end]
            end += 1
        yield _table(first, heads[start:end], names, rows, slice(start, end))
        if end >= len(heads):
            return
        start = end


def _table(
    first: str, heads: Sequence[str], names: Sequence[str], rows: Sequence[Row], columns: slice
) -> "Table":
    from rich.text import Text

    from kvsim.report.table_style import empty_table

    table = empty_table()
    table.add_column(Text(first), overflow="fold")
    for head in heads:
        table.add_column(Text(head), justify="right", overflow="fold")
    for name, row in zip(names, rows, strict=True):
        if row.section:
            table.add_section()
        texts = (Text(cell.text, style=cell.style) for cell in row.cells[columns])
        table.add_row(_swatched(name, row.name.style), *texts)
    return table


def _swatched(name: str, style: str) -> "Text":
    """The name with its first character in the given style, as a colour swatch."""
    from rich.text import Text

    text = Text(name)
    if style:
        text.stylize(style, 0, 1)
    return text
