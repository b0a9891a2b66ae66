"""What a source format answers: is this mine, and what does it say."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from kvsim.interchange.description import Description
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.files import read_bytes
from kvsim.plumbing.reading.json_text import JsonError, loads

HEAD_BYTES = 1 << 16
MOST_BYTES = 1 << 28  # of a source that is read as a whole
ENGINE_ITSELF, ASKED_FOR, CLIENT = 3, 2, 1


class Sniffed(NamedTuple):
    """A source as a format looks at it. path: a file or a folder. data: its bytes (b"" of a
    folder). text: their beginning. document: the value, where all of it is one JSON text.
    records: the values of its first lines, where those are JSON.
    """

    path: Path
    data: bytes
    text: str
    document: Any
    records: list[Any]

    @property
    def name(self) -> str:
        """Its name, for messages."""
        return self.path.name

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.path.is_dir()

    def string(self) -> str:
        """All of it as text; what is not UTF-8 is replaced (logs hold anything)."""
        return self.data.decode("utf-8", errors="replace")

    def object(self) -> dict[str, Any]:
        """The JSON object it is."""
        if not isinstance(self.document, dict):
            raise InputError("not a JSON object", where=self.name)
        return self.document

    def holds(self, *signs: str) -> bool:
        """Whether any of these stands anywhere in it."""
        return any(sign.encode() in self.data for sign in signs)

    def has_keys(self, *keys: str) -> bool:
        """Whether it is a JSON object with these keys."""
        return isinstance(self.document, dict) and set(keys) <= self.document.keys()

    def first_record(self) -> dict[str, Any]:
        """The first of its lines of JSON; {} where there is none."""
        first = self.records[0] if self.records else None
        return first if isinstance(first, dict) else {}


class Source(Options):
    """A format; it has no options of its own.

    rank: whose word counts where two sources contradict: the engine's about itself, what was asked
    of it, what a client says. what: what kind of file it is, for people.
    """

    rank: ClassVar[int]
    what: ClassVar[str]

    @classmethod
    @abstractmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Whether the source is of this format. Never raises."""

    @classmethod
    @abstractmethod
    def read(cls, source: Sniffed) -> Description:
        """What it says; InputError where it is damaged. Secrets and prompts are not looked at."""


def look(path: Path) -> Sniffed:
    """Read a source once, for all formats; InputError if it cannot be read or is too large."""
    if path.is_dir():
        return Sniffed(path, b"", "", None, [])
    data = read_bytes(path, MOST_BYTES)
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
    """Of whole lines alone, at most ten."""
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
