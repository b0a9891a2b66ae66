"""The tables of a what-if, printed."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from kvsim.whatif.page import Cells


LONGEST_NAME = 24  # that is never folded


def printed(cells: "Cells") -> "Table":
    """The table for a terminal; texts are a user's, so their brackets are no markup."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=cells.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for at, head in enumerate(cells.heads):
        least = (
            None if at else min(LONGEST_NAME, max((len(row[0]) for row in cells.rows), default=0))
        )
        table.add_column(
            escape(head), justify="right" if at else "left", overflow="fold", min_width=least
        )
    for row in cells.rows:
        table.add_row(*map(escape, row))
    return table
