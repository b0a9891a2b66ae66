"""The tables of a what-if, printed."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from kvsim.whatif.page import Cells


LONGEST_NAME = 30  # that is never folded


def printed(cells: "Cells") -> "Table":
    """The table for a terminal; texts are a user's, so their brackets are no markup."""
    from rich.markup import escape

    from kvsim.commands.tables import numbers_table

    table = numbers_table(*map(escape, cells.heads), title=escape(cells.title))
    longest = max((len(row[0]) for row in cells.rows), default=0)
    table.columns[0].no_wrap = longest <= LONGEST_NAME  # the others fold first
    for row in cells.rows:
        table.add_row(*map(escape, row))
    return table
