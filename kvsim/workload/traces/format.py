"""The interface of a trace format: detection, reading and writing of rows.

The checks common to all formats are in `reader`; a format only parses its own columns.
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
    """A trace format; the fields are its options for reading and writing.

    needs: data that a trace must have to be written in this format. carries: further data that the
    format can store. chains_sessions: every row of a session follows the one before. example: its
    header or keys, for messages.
    """

    needs: ClassVar[frozenset[str]] = frozenset({TIMES})
    chains_sessions: ClassVar[bool] = False
    carries: ClassVar[frozenset[str]] = frozenset()
    example: ClassVar[str]

    @classmethod
    @abstractmethod
    def sniff(cls, lines: list[str]) -> bool:
        """Whether a file that begins with these lines (at least one) is in this format. Never
        raises.
        """

    @abstractmethod
    def read(self, text: Text) -> UncheckedRows:
        """The rows in file order; InputError for a line that breaks the format."""

    @abstractmethod
    def write(self, trace: Trace) -> Iterator[str]:
        """Yield the lines of a file with the same rows; the trace must have the data that `needs`
        lists.

        InputError for a row that the format cannot hold.
        """


class CsvFormat(TraceFormat):
    """A CSV format with one row for each request. columns: required columns; signs: columns that
    identify the format (default: all required ones); optional: further columns.
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
