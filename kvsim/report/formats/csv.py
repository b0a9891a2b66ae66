"""The numbers of summary.json as a CSV table for a spreadsheet."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from kvsim.report.form import Form
from kvsim.results.result import Result

# A spreadsheet takes a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Csv(Form):
    """One row per run, one column per number of its summary by dotted key: `ttft_s.p50`."""

    def make(self, result: Result) -> bytes:
        """The table as UTF-8 CSV with a header."""
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
    """The text, with an apostrophe before it if a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
