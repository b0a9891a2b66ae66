"""Tables of commands on a terminal: numbers to the right, in the one style of all tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kvsim.step_time.calibrated.fitted import Errors
    from kvsim.step_time.calibrated.samples import Kind


def plain_table(*columns: str, title: str | None = None, folds: bool = False) -> "Table":
    """An empty table. A name that begins with `>` is of a column of numbers.

    folds: whether every column may fold; otherwise the first and those of numbers never do.
    """
    from kvsim.report.table_style import empty_table

    table = empty_table(title)
    for index, column in enumerate(columns):
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=not folds and (index == 0 or right),
            overflow="fold",
        )
    return table


def numbers_table(
    *columns: str, title: str | None = None, rows: Iterable[Iterable[str]] = ()
) -> "Table":
    """A table with a column of names, then columns of numbers; all may fold."""
    first, *others = columns
    table = plain_table(first, *(f">{column}" for column in others), title=title, folds=True)
    for row in rows:
        table.add_row(*row)
    return table


def errors_table(
    title: str,
    by_kind: "Mapping[Kind, Errors]",
    sizes: Sequence[str] = ("mape", "p50", "p90", "max"),
) -> "Table":
    """Relative errors of steps in %, a row a kind of step. sizes: fields of `Errors`."""
    heads = [name.replace("mape", "mean") for name in sizes]
    table = numbers_table("step", "n", *heads, "bias", title=title)
    for kind, errors in by_kind.items():
        figures = [f"{100 * getattr(errors, size):.1f}" for size in sizes]
        table.add_row(kind, f"{errors.n:,}", *figures, f"{100 * errors.bias:+.1f}")
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
