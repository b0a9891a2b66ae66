"""The interface of a reader: detection, the kinds of content, and reading of a file."""

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
    """A source as a format looks at it. path: a file or a folder. data: its bytes (b"" of a
    folder). text: their beginning. document: the value, where all of it is one JSON text.
    records: the values of its first lines, where those are JSON. variables: of scripts, as the user
    named them. server: which of several that a manifest starts. ledger: of what its reader takes;
    None: nobody asks.
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
        """Whether it is a folder."""
        return self.path.is_dir()

    @property
    def may_be_log(self) -> bool:
        """Whether it may be a log: no JSON, and no script, of which comments may look like one."""
        return self.document is None and not self.text.startswith("#!")

    def string(self) -> str:
        """The whole file as text; bytes that are not UTF-8 are replaced (logs may contain
        anything).
        """
        return self.data.decode("utf-8", errors="replace")

    def object(self) -> dict[str, Any]:
        """The JSON object it is."""
        if not isinstance(self.document, dict):
            raise InputError("not a JSON object", where=self.name)
        return self.document

    def fields(self) -> Fields:
        """The file's JSON object; its keys are recorded in the ledger."""
        return Fields(self.object(), self.name, self.ledger)

    def holds(self, *signs: str) -> bool:
        """Whether any of these signs is anywhere in the file."""
        return any(sign.encode() in self.data for sign in signs)

    def has_keys(self, *keys: str) -> bool:
        """Whether it is a JSON object with these keys."""
        return isinstance(self.document, dict) and set(keys) <= self.document.keys()

    def first_record(self) -> dict[str, Any]:
        """The first of its lines of JSON; {} where there is none."""
        first = self.records[0] if self.records else None
        return first if isinstance(first, dict) else {}


class Reader(Options):
    """A kind of file or folder that other tools write; it has no options of its own.

    what: the kind of file, for messages. gives: the parts that a file of this kind may hold.
    """

    what: ClassVar[str]
    gives: ClassVar[frozenset[Part]]

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Whether the source is of this kind; the sniff of a `Source` never raises."""
        raise NotImplementedError(cls.__name__)  # every registered reader overrides this


class Source(Reader):
    """A reader that describes one server, as far as the file goes.

    rank: of two sources that contradict each other the one of the higher rank counts. What the
    engine prints about itself ranks above what was asked of the engine, and that above what a
    client reports. harmless: names in its files, with their places, that are known to say nothing
    of memory or time.
    """

    rank: ClassVar[int]
    harmless: ClassVar[re.Pattern[str] | None] = None

    @classmethod
    def servers(cls, source: Sniffed) -> list[StartedServer]:
        """The servers with flags of their own that it starts, each of which `Sniffed.server` reads;
        none where it cannot start several.
        """
        return []

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """The source's description; InputError where it is damaged. Secrets are not looked at."""
        raise NotImplementedError(cls.__name__)  # every registered source overrides this


class RecordedRuns(Reader):
    """A reader of folders of whole runs, in the form in which they were published."""

    gives = SERVER | STREAM | MEASURED

    @classmethod
    def runs(cls, folder: Path) -> "Iterator[Trial]":
        """The folder's runs, in the order of its files; InputError names file and fault."""
        raise NotImplementedError(cls.__name__)  # every registered reader of runs overrides this


def look(path: Path) -> Sniffed:
    """Read a source once, for all formats; InputError if it cannot be read or is too large."""
    if path.is_dir():
        return Sniffed(path, b"", "", None, [])
    data = read_bytes(path, MOST_BYTES)
    check_lines(line_ends(data), path)
    return sniffed(path, data)


def sniffed(path: Path, data: bytes) -> Sniffed:
    """Bytes as a source, that a file of this path has or a part of it."""
    text = data[:HEAD_BYTES].decode("utf-8", errors="replace")
    return Sniffed(path, data, text, _document(data), _records(text))


def first_record(path: Path) -> dict[str, Any]:
    """The first of a file's lines of JSON; {} where there is none, or it cannot be read."""
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
    """The first JSON records, of whole lines alone, at most ten."""
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
