"""The numbers of the summary as a table for a spreadsheet."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from kvsim.report.form import Form
from kvsim.results.result import Result

# A spreadsheet takes a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Csv(Form):
    """One row a run, one column a number of its summary, by its path: `ttft_s.p50`."""

    def make(self, result: Result) -> bytes:
        """The table as CSV: UTF-8 with a heading."""
        rows = [dict(_leaves(run.summary)) for run in result.runs]
        columns = dict.fromkeys(name for row in rows for name in row)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, str):
        yield path, no_formula(value)
    elif not isinstance(value, list | tuple):
        yield path, "" if value is None else value


def no_formula(text: str) -> str:
    """A user's text, which a spreadsheet shows as it is."""
    return f"'{text}" if text.startswith(_FORMULA) else text
