"""Parse the files of published runs: tables of strings, and bounded numbers."""

from pathlib import Path
from typing import Any, NamedTuple

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

Column = NDArray[np.float64]


class RunRow(NamedTuple):
    """A row of a CSV file, without empty cells. where is the row's place, for messages."""

    cells: dict[str, str]
    where: str

    def text(self, column: str) -> str:
        """The text of a cell; InputError if it is empty."""
        if column not in self.cells:
            raise InputError("no value in this column", where=self.where, value=column)
        return self.cells[column]

    def number(self, column: str, least: float = 0.0, empty: str | None = None) -> float:
        """A cell as a number of at least `least`; `empty` is the text used for an empty cell."""
        cell = self.text(column) if empty is None else self.cells.get(column, empty)
        where = f"{self.where}.{column}"
        try:
            value = float(cell)
        except ValueError:
            raise InputError("not a number", where=where, value=repr(cell)) from None
        if not least <= value <= MOST:
            limit = f"{least:g} to {MOST:,.0f}"
            raise InputError("out of range", where=where, value=value, limit=limit)
        return value

    def count(self, column: str) -> int:
        """A cell as a count of at least 1 request."""
        value = round(self.number(column, least=1.0))
        if value > MOST_REQUESTS:
            where = f"{self.where}.{column}"
            raise InputError("too many requests", where=where, value=value, limit=MOST_REQUESTS)
        return value


def read_rows(path: Path) -> list[RunRow]:
    """The rows of a CSV file; InputError if there are none."""
    rows = [RunRow(cells, str(path)) for _, cells in records(read_text(path))]
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
    """The column names of a CSV file; empty if there is no such file."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return set(header_of(file.readline(MOST_HEAD_BYTES)))
    except OSError:
        return set()


def served(
    arrival: Column, first: Column, last: Column, prompt: Column, output: Column, where: object
) -> ServedTimes:
    """Times (s, measured by the client) and lengths (tokens) of the answered requests.

    InputError if no request was answered, or one was answered before it was sent.
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
    """A request; lengths below one token are raised to one."""
    return Request(
        id=name,
        arrival_ps=ps_from_seconds(arrival_s),
        prompt_tokens=max(1, round(prompt_tokens)),
        output_tokens=max(1, round(output_tokens)),
        prompt_runs=prompt_runs,
    )
