"""How the files of published runs are read: tables of strings, figures with bounds."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsim.observed.trial import ServedTimes
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.csv_rows import header_of, records
from kvsim.plumbing.reading.files import read_bytes, read_text
from kvsim.plumbing.reading.json_text import MOST_BYTES, JsonError, loads
from kvsim.plumbing.units import ps_from_seconds
from kvsim.request import Request, TokenRuns

MOST = 9e9  # of any figure: seconds since 1970, tokens, milliseconds
MOST_REQUESTS = 10**6  # of one run that nobody recorded one by one
MOST_HEAD_BYTES = 1 << 16

Row = dict[str, str]
Column = NDArray[np.float64]


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV file, empty fields left out; at least one."""
    rows = [row for _, row in records(read_text(path))]
    if not rows:
        raise InputError("no rows", where=str(path))
    return rows


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return loads(read_bytes(path, MOST_BYTES))
    except JsonError as error:
        raise InputError("not a JSON file", where=str(path), value=error) from None


def head_of(path: Path) -> set[str]:
    """The columns of a CSV file; none if there is no such file."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return set(header_of(file.readline(MOST_HEAD_BYTES)))
    except OSError:
        return set()


def text(row: Row, column: str, where: object) -> str:
    """A cell that is not empty."""
    if column not in row:
        raise InputError("no value in this column", where=str(where), value=column)
    return row[column]


def number(
    row: Row, column: str, where: object, empty: str | None = None, least: float = 0.0
) -> float:
    """A cell as a number from `least` on; `empty` stands for an empty one."""
    cell = row.get(column, empty)
    if cell is None:
        raise InputError("no value in this column", where=str(where), value=column)
    try:
        value = float(cell)
    except ValueError:
        raise InputError("not a number", where=f"{where}.{column}", value=repr(cell)) from None
    if not least <= value <= MOST:
        limit = f"{least:g} to {MOST:,.0f}"
        raise InputError("out of range", where=f"{where}.{column}", value=value, limit=limit)
    return value


def count(row: Row, column: str, where: object) -> int:
    """A cell as a count of requests, at least one."""
    value = round(number(row, column, where, least=1.0))
    if value > MOST_REQUESTS:
        raise InputError(
            "too many requests", where=f"{where}.{column}", value=value, limit=MOST_REQUESTS
        )
    return value


def served(
    arrival: Column, first: Column, last: Column, prompt: Column, output: Column, where: object
) -> ServedTimes:
    """What clients saw, in seconds and tokens; InputError if nobody was served, or somebody before
    being asked.
    """
    if not len(arrival):
        raise InputError("no request was answered", where=str(where))
    backwards = np.flatnonzero((first < arrival) | (last < first))
    if len(backwards):
        at = int(backwards[0])
        raise InputError(
            "times that go back: arrival, first and last token",
            where=f"{where}: request {at}",
            value=", ".join(f"{times[at]:g}" for times in (arrival, first, last)),
        )
    if float(last.max()) <= float(arrival.min()):
        raise InputError("the run took no time", where=str(where))
    return ServedTimes(arrival, first, last, prompt.astype(int), output.astype(int))


def request(
    name: str,
    arrival_s: float,
    prompt_tokens: float,
    output_tokens: float,
    prompt_runs: TokenRuns | None = None,
) -> Request:
    """A request of at least one token either way."""
    return Request(
        id=name,
        arrival_ps=ps_from_seconds(arrival_s),
        prompt_tokens=max(1, round(prompt_tokens)),
        output_tokens=max(1, round(output_tokens)),
        prompt_runs=prompt_runs,
    )
