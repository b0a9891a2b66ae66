"""Tables of commands on a terminal: numbers aligned to the right, one style for all."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kvsim.step_time.calibrated.fitted import Errors
    from kvsim.step_time.calibrated.samples import Kind


def plain_table(*columns: str, title: str | None = None, folds: bool = False) -> "Table":
    """An empty table. A column name that begins with `>` makes a column of numbers.

    folds: whether every column may wrap; otherwise the first column and those of numbers never
    wrap.
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
    """A table with a first column of names and further columns of numbers; all columns may wrap."""
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
    """A table of relative errors of step times in %, one row per kind of step. sizes: the fields of
    `Errors` to show.
    """
    heads = [name.replace("mape", "mean") for name in sizes]
    table = numbers_table("step", "n", *heads, "bias", title=title)
    for kind, errors in by_kind.items():
        figures = [f"{100 * getattr(errors, size):.1f}" for size in sizes]
        table.add_row(kind, f"{errors.n:,}", *figures, f"{100 * errors.bias:+.1f}")
    return table


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table of texts on stdout; square brackets in a text are printed, not taken for
    markup.
    """
    from rich.markup import escape

    table = plain_table(*columns)
    for row in rows:
        table.add_row(*map(escape, row))
    out().print(table)


def out() -> "Console":
    """A console on stdout, as wide as the terminal; if stdout is no terminal, wide enough to wrap
    nothing.
    """
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)
