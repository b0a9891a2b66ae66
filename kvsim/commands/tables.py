"""How every command prints a table: no lines, a bold head, numbers to the right."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def plain_table(*columns: str, title: str | None = None) -> "Table":
    """An empty table; a column whose name begins with `>` holds numbers. The first never folds."""
    from rich.table import Table

    table = Table(
        box=None,
        padding=(0, 1, 0, 0),
        header_style="bold",
        title=title,
        title_justify="left",
        title_style="bold",
    )
    for index, column in enumerate(columns):
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=index == 0 or right,
            overflow="fold",
        )
    return table


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """A table of texts on stdout; brackets in them are themselves."""
    from rich.markup import escape

    table = plain_table(*columns)
    for row in rows:
        table.add_row(*map(escape, row))
    out().print(table)


def out() -> "Console":
    """Stdout, as wide as the terminal; where it is no terminal, wide enough to fold nothing."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)
