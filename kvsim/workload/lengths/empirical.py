"""Recorded lengths: resampled from a column of a file."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.csv_rows import header_of, numbered_rows
from kvsim.plumbing.reading.files import read_text
from kvsim.workload.lengths.distribution import LengthOptions, Lengths
from kvsim.workload.text import tokens


class EmpiricalLength(LengthOptions):
    """Drawn with replacement from `column` of the CSV file `path` (which has a header)."""

    path: Path
    column: str

    def draw(self, count: int, rng: np.random.Generator, base: Path) -> Lengths:
        """`count` lengths drawn from the file's."""
        path = base / self.path
        recorded = _recorded(path, self.column, path.stat().st_mtime_ns if path.exists() else 0)
        return recorded[rng.integers(len(recorded), size=count)]


@lru_cache(maxsize=4)
def _recorded(path: Path, column: str, changed_ns: int) -> Lengths:
    """The column's lengths, cached until the file changes."""
    text = read_text(path)
    header = header_of(text.lines[0])
    if column not in header:
        raise InputError(
            "no such column",
            where=f"{text.name}, line 1",
            value=repr(column),
            remedy=f"columns: {', '.join(header)}",
        )
    place = header.index(column)
    values = [
        tokens(fields[place], text.name, line, column) for line, fields in numbered_rows(text)
    ]
    if not values:
        raise InputError("the file has a header and no rows", where=text.name)
    return np.array(values, dtype=np.int64)
