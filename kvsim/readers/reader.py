"""The interface of a reader: recognise a file, say which parts it has, and read it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.files import check_lines, line_ends, read_bytes
from kvsim.plumbing.reading.json_text import JsonError, loads
from kvsim.readers.description import Description
from kvsim.readers.parsing.fields import Fields
from kvsim.readers.parsing.ledger import SourceLedger
from kvsim.readers.parsing.manifests import StartedServer

if TYPE_CHECKING:
    from kvsim.observed.trial import Trial

# server: configuration, pool, flags. stream: requests. measured: latencies, gauges, totals.
Part = Literal["server", "stream", "measured"]
SERVER: frozenset[Part] = frozenset(("server",))
STREAM: frozenset[Part] = frozenset(("stream",))
MEASURED: frozenset[Part] = frozenset(("measured",))
HEAD_BYTES = 1 << 16
MOST_BYTES = 1 << 28  # of a source that is read as a whole
ENGINE_ITSELF, ASKED_FOR, CLIENT = 3, 2, 1


class Sniffed(NamedTuple):
    """A source, prepared for recognition by all readers.

    path is a file or a folder. data has the file's bytes (b"" for a folder), text their beginning.
    document is the value if the file is one JSON text. records has the values of the first lines if
    these are JSON. variables are values of shell variables from the user. server is one of several
    that a manifest starts. ledger records what a reader uses; None: nothing is recorded.
    """

    path: Path
    data: bytes
    text: str
    document: Any
    records: list[Any]
    variables: Mapping[str, str] = {}
    server: StartedServer | None = None
    ledger: SourceLedger | None = None

    @property
    def name(self) -> str:
        """The file's name, for messages."""
        return self.path.name

    @property
    def is_folder(self) -> bool:
        """Whether the source is a folder."""
        return self.path.is_dir()

    @property
    def may_be_log(self) -> bool:
        """Whether the source may be a log: neither JSON nor a script, since a script's comments may
        look like log lines.
        """
        return self.document is None and not self.text.startswith("#!")

    def string(self) -> str:
        """The whole file as text; bytes that are not UTF-8 are replaced, since logs may contain any
        bytes.
        """
        return self.data.decode("utf-8", errors="replace")

    def object(self) -> dict[str, Any]:
        """The file as a JSON object; InputError if it is not one."""
        if not isinstance(self.document, dict):
            raise InputError("not a JSON object", where=self.name)
        return self.document

    def fields(self) -> Fields:
        """The file's JSON object as Fields, which record the keys in the ledger."""
        return Fields(self.object(), self.name, self.ledger)

    def holds(self, *signs: str) -> bool:
        """Whether the file contains any of these texts."""
        return any(sign.encode() in self.data for sign in signs)

    def has_keys(self, *keys: str) -> bool:
        """Whether the file is a JSON object with all of these keys."""
        return isinstance(self.document, dict) and set(keys) <= self.document.keys()

    def first_record(self) -> dict[str, Any]:
        """The first line's JSON object; {} if there is none."""
        first = self.records[0] if self.records else None
        return first if isinstance(first, dict) else {}


class Reader(Options):
    """A kind of file or folder that another tool writes. It has no options.

    what describes the file in messages. gives says which parts such a file may have.
    """

    what: ClassVar[str]
    gives: ClassVar[frozenset[Part]]

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Whether the source is of this kind; the sniff of a `Source` never raises."""
        raise NotImplementedError(cls.__name__)  # every registered reader overrides this


class Source(Reader):
    """A reader of files that describe one server, completely or in part.

    rank decides contradictions: the source of higher rank takes precedence. What the engine prints
    about itself ranks above what its command line asks for, and that above what a client reports.
    harmless matches entries in such files that do not affect memory or time.
    """

    rank: ClassVar[int]
    harmless: ClassVar[re.Pattern[str] | None] = None

    @classmethod
    def servers(cls, source: Sniffed) -> list[StartedServer]:
        """The servers with different flags that a file starts; each can be read with
        `Sniffed.server`. Empty if the file cannot start several.
        """
        return []

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Describe the source; InputError if the file is damaged. Secrets are not read."""
        raise NotImplementedError(cls.__name__)  # every registered source overrides this


class RecordedRuns(Reader):
    """A reader of folders with complete runs, in the form in which they were published."""

    gives = SERVER | STREAM | MEASURED

    @classmethod
    def runs(cls, folder: Path) -> "Iterator[Trial]":
        """The runs of a folder, in order of its files; InputError gives the file and the fault."""
        raise NotImplementedError(cls.__name__)  # every registered reader of runs overrides this


def look(path: Path) -> Sniffed:
    """Read a file or folder once, for all readers; InputError if it is unreadable or too large."""
    if path.is_dir():
        return Sniffed(path, b"", "", None, [])
    data = read_bytes(path, MOST_BYTES)
    check_lines(line_ends(data), path)
    return sniffed(path, data)


def sniffed(path: Path, data: bytes) -> Sniffed:
    """A source made of bytes, which are a whole file or a part of one; path is for messages."""
    text = data[:HEAD_BYTES].decode("utf-8", errors="replace")
    return Sniffed(path, data, text, _document(data), _records(text))


def first_record(path: Path) -> dict[str, Any]:
    """The JSON object on a file's first line; {} if there is none, or the file is unreadable."""
    try:
        return look(path).first_record() if path.is_file() else {}
    except InputError:
        return {}


def _document(data: bytes) -> Any:
    if data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return loads(data, unsigned=True)
    except JsonError:
        return None


def _records(text: str) -> list[Any]:
    """The JSON values of the first complete lines, at most ten."""
    found = []
    for line in text.split("\n")[:11][:-1] or [text]:
        if not line.strip():
            continue
        if line.lstrip()[0] not in "{[":
            return []
        try:
            found.append(loads(line, unsigned=True))
        except JsonError:
            return []
    return found
