"""Base of recorded cases of any program: how a case is recognised and compared."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from evidence.schedule.rows import Row
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.json_text import read_object

EXPECTED = (".expected.json.gz", ".expected.json")


class RecordedCase(Options):
    """A recorded case as input. Each registered kind defines which cases it recognises, and how
    kvsim produces their rows.

    recognised_by: the key, or the kind, by which a case is recognised.
    """

    recognised_by: ClassVar[str]

    name: str
    desc: str = ""

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        """Whether a table is a case of this kind."""
        raise NotImplementedError(cls.__name__)  # every registered kind overrides this

    def simulated(self, recorded: list[Row]) -> list[Row]:
        """The rows that kvsim produces. recorded: the real program's rows, for kinds that depend on
        how the recorder wrote them.
        """
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this

    @classmethod
    def rows_of(cls, expectation: Mapping[str, Any]) -> Any:
        """The recorded rows in a parsed expectation file."""
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
    """Path of NAME.expected.json.gz or NAME.expected.json next to NAME.json."""
    for suffix in EXPECTED:
        beside = path.with_name(path.name.removesuffix(".json") + suffix)
        if beside.exists():
            return beside
    raise InputError(
        "no expectation for the case",
        where=str(path),
        remedy=f"expected {path.name.removesuffix('.json')}.expected.json.gz in the same folder",
    )
