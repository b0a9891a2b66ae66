"""Chosen columns of `Result.table` as TeX, Markdown or CSV, for a paper or a spreadsheet."""

import math
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.extras import need
from kvsim.report.formats.csv import no_formula
from kvsim.report.formats.markdown import escaped, pipe_table
from kvsim.results.result import Result

if TYPE_CHECKING:
    import pandas as pd

_DIGITS = 4  # significant ones


def table_of(result: Result, columns: Sequence[str]) -> "pd.DataFrame":
    """One row per run, by label, with these columns of `Result.table`; InputError for an unknown
    column.
    """
    need("pandas", where="--columns")
    whole = result.table()
    for name in columns:
        if name not in whole:
            close = get_close_matches(name, whole.columns, n=3, cutoff=0.4)
            raise InputError(
                "no such number in summary.json",
                where="--columns",
                value=name,
                remedy=f"did you mean {' or '.join(close)}?" if close else "see docs/results.md",
            )
    return whole[list(columns)]


def _tex(table: "pd.DataFrame") -> bytes:
    """A LaTeX `tabular` with the rules of the package booktabs."""
    texts = table.map(_text).rename_axis(None)
    made: str = texts.to_latex(escape=True, column_format=f"l{'r' * len(table.columns)}")
    return made.encode()


def _markdown(table: "pd.DataFrame") -> bytes:
    """A table in GitHub's Markdown."""
    rows = [
        [escaped(str(label)), *(escaped(_text(value)) for value in row)]
        for label, row in zip(table.index, table.to_numpy().tolist(), strict=True)
    ]
    return (pipe_table(["", *map(escaped, table.columns)], *rows) + "\n").encode()


def _csv(table: "pd.DataFrame") -> bytes:
    """CSV with all digits and a header."""
    made: str = table.rename(index=no_formula).to_csv(lineterminator="\n")
    return made.encode()


TABLE_FORMS: dict[str, Callable[["pd.DataFrame"], bytes]] = {
    "tex": _tex,
    "md": _markdown,
    "csv": _csv,
}


def _text(value: object) -> str:
    """A number with _DIGITS significant digits, without an exponent if it needs none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if math.isnan(value):  # this run has no such number
        return "-"
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):d}"
    return f"{value:.{_DIGITS}g}" if 1e-4 <= abs(value) < 10**_DIGITS else f"{value:.0f}"
