"""What a collection of recorded runs promises, and how its files are read."""

import csv
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvsim.observed.trial import Trial
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import ps_from_seconds
from kvsim.request import Request, TokenRuns


class Collection(Options):
    """One way in which runs were published: a folder with files of certain names and columns."""

    @classmethod
    def claims(cls, folder: Path) -> bool:
        """Whether the folder is one; reads no more than the heads of files."""
        raise NotImplementedError(cls.__name__)  # every registered collection overrides this

    @classmethod
    def trials(cls, folder: Path) -> Iterator[Trial]:
        """Its runs, in the order of its files; InputError names file and fault."""
        raise NotImplementedError(cls.__name__)  # every registered collection overrides this


Row = dict[str, str]


def read_text(path: Path) -> str:
    """A file's text, unpacked if its name ends with .gz."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except OSError as error:
        raise InputError("cannot read it", where=str(path), value=error.strerror or error) from None
    except (EOFError, UnicodeDecodeError) as error:
        raise InputError("damaged", where=str(path), value=error) from None


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV file, each as long as its head; at least one."""
    reader = csv.DictReader(io.StringIO(read_text(path)))
    rows = []
    for row in reader:
        if None in row or None in row.values():
            raise InputError("wrong number of fields", where=f"{path}:{reader.line_num}")
        rows.append(row)
    if not rows:
        raise InputError("no rows", where=str(path))
    return rows


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise InputError("not a JSON file", where=str(path), value=error) from None


def head_of(path: Path) -> set[str]:
    """The columns of a CSV file; none if there is no such file."""
    if not path.is_file():
        return set()
    with path.open(encoding="utf-8", errors="replace") as file:
        return set(file.readline().strip().split(","))


def number(row: Row, column: str, where: object, empty: str = "") -> float:
    """A cell as a number >= 0; `empty` stands for an empty one."""
    try:
        value = float(row[column] or empty)
    except KeyError:
        raise InputError("the column is missing", where=str(where), value=column) from None
    except ValueError:
        raise InputError(
            "not a number", where=f"{where}.{column}", value=repr(row[column])
        ) from None
    if not value >= 0:
        raise InputError("not a number from 0 on", where=f"{where}.{column}", value=value)
    return value


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
