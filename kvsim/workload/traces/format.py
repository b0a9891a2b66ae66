"""The interface of a trace format: detection, reading and writing of rows.

The checks that hold for all formats are in `reader`; a format knows its own columns alone.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.csv_rows import has_columns
from kvsim.plumbing.reading.files import Text
from kvsim.workload.traces.line import Line, csv_lines
from kvsim.workload.traces.record import Trace, TraceRow

TIMES, HASHES, SESSIONS, DELAYS = "arrival times", "hash ids", "sessions", "delays"
ITEMS, ADAPTERS = "items of prompts", "adapters"


class UncheckedRows(NamedTuple):
    """Unchecked rows of a format, and the wall clock at time 0 in ps since 1970."""

    rows: Iterator[TraceRow]
    origin_ps: int | None = None


class TraceFormat(Options):
    """A trace format; its fields are the options that reading or writing it takes.

    needs: what a trace must hold to be written so. carries: what else the format can hold.
    chains_sessions: every row of a session follows the one before.
    example: its header or keys, for messages.
    """

    needs: ClassVar[frozenset[str]] = frozenset({TIMES})
    chains_sessions: ClassVar[bool] = False
    carries: ClassVar[frozenset[str]] = frozenset()
    example: ClassVar[str]

    @classmethod
    @abstractmethod
    def sniff(cls, lines: list[str]) -> bool:
        """Whether a file of these lines (at least one) is of this format. Never raises."""

    @abstractmethod
    def read(self, text: Text) -> UncheckedRows:
        """The rows in file order; InputError for a line that is not as the format has it."""

    @abstractmethod
    def write(self, trace: Trace) -> Iterator[str]:
        """Yield the lines of a file with the same rows, for a trace that has the `needs`.

        InputError for a row that the format cannot hold.
        """


class CsvFormat(TraceFormat):
    """A format of one row a request. columns: those that a file must have; signs: those by which it
    is known (default: all of them); optional: those that it may have.
    """

    columns: ClassVar[tuple[str, ...]]
    signs: ClassVar[tuple[str, ...] | None] = None
    optional: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def sniff(cls, lines: list[str]) -> bool:
        return has_columns(lines[0], cls.signs or cls.columns)

    def read(self, text: Text) -> UncheckedRows:
        return UncheckedRows(map(self.row, csv_lines(text, self.columns, self.optional)))

    @abstractmethod
    def row(self, line: Line) -> TraceRow:
        """The request of a line."""


class HashedFormat(TraceFormat):
    """A format with hashed prompt blocks.

    complete_blocks_only: a prompt's last block has an id only if it is full.
    """

    complete_blocks_only: ClassVar[bool] = False
    hash_block_tokens: int
