"""Recordings from a real program, as input, whatever the program."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from evidence.schedule.rows import Row
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.json_text import read_object

EXPECTED = (".expected.json.gz", ".expected.json")


class RecordedCase(Options):
    """A recorded input; each registered kind says which tables are its own and what kvsim makes of
    them.

    recognised_by: the key, or the kind, that such a table has.
    """

    recognised_by: ClassVar[str]

    name: str
    desc: str = ""

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        """Whether a table is an input of this kind."""
        raise NotImplementedError(cls.__name__)  # every registered kind overrides this

    def simulated(self, recorded: list[Row]) -> list[Row]:
        """The rows that kvsim produces. recorded: the rows of the real program, where how they were
        written down has to be known.
        """
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this

    @classmethod
    def rows_of(cls, expectation: Mapping[str, Any]) -> Any:
        """The recorded rows in the expectation file."""
        return expectation.get("steps")

    @classmethod
    def expected(cls, path: Path) -> list[Row]:
        """The recorded rows of the case at `path`."""
        beside = _beside(path)
        rows = cls.rows_of(read_object(beside))
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InputError("no list of recorded rows", where=str(beside))
        return rows


def _beside(path: Path) -> Path:
    """NAME.expected.json.gz or NAME.expected.json in the folder of NAME.json."""
    for suffix in EXPECTED:
        beside = path.with_name(path.name.removesuffix(".json") + suffix)
        if beside.exists():
            return beside
    raise InputError(
        "no expectation for the case",
        where=str(path),
        remedy=f"expected {path.name.removesuffix('.json')}.expected.json.gz in the same folder",
    )
