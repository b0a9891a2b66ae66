"""Bytes and lines of a file, gzip or plain, up to a maximum size."""

import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from kvsim.plumbing.errors import InputError

MOST_BYTES = 4 << 30  # of a table, unpacked
MOST_LINES = 50_000_000  # each of which takes room, be it empty
LINE_ENDS = b"\n\r\v\f\x1c\x1d\x1e"  # that `str.splitlines` knows, of one byte
CHUNK_BYTES = 1 << 16  # of what does not say how long it is
MOST_TIMES = 100  # its own size that a gzip may unpack to; public traces take 2 to 5
SMALL_BYTES = 1 << 26  # which it may unpack to in any case
GZIP = b"\x1f\x8b"
PIECE_BYTES = 1 << 12  # of a gzip: of which zlib makes at most 1,032 times as many
_GZIP_FORM = 31  # zlib's number for a window of 32 KiB in a gzip wrapper


class Text(NamedTuple):
    """A file's name and its lines, without line ends and without blank lines at the end."""

    name: str
    lines: list[str]


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Read a file, unpacked if it is gzip; InputError if it is unreadable or larger than
    `most_bytes`.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError("cannot read it: a folder, where a file is meant", where=str(path))
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise InputError("cannot read it: a device, where a file is meant", where=str(path))
        with path.open("rb") as file:
            data = _up_to(most_bytes + 1, file, path.stat().st_size)
    except OSError as error:
        raise InputError(f"cannot read it: {error.strerror}", where=str(path)) from None
    except ValueError:  # a name with a zero byte in it
        raise InputError("cannot read it: no name of a file", where=repr(str(path))) from None
    if data.startswith(GZIP):
        return _unpacked(data, path, most_bytes)
    _check_size(len(data), path, most_bytes)
    return data


def _up_to(most_bytes: int, file: BinaryIO, size: int) -> bytes:
    """Read at most `most_bytes` of a file that reports `size` bytes (0 for a pipe).

    `read(n)` allocates n bytes at once. So the first call asks only for the reported size, and the
    rest is read in chunks.
    """
    parts = [file.read(min(size + 1, most_bytes))]
    missing = most_bytes - len(parts[0])
    while missing and (more := file.read(min(CHUNK_BYTES, missing))):
        parts.append(more)
        missing -= len(more)
    return b"".join(parts)


def read_string(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """The text of a UTF-8 file; InputError gives the first line that is not UTF-8."""
    return _decoded(read_bytes(path, most_bytes), path)


def _decoded(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise row_error(
            path.name, line, "not UTF-8 text", f"byte 0x{data[error.start]:02x}"
        ) from None


def read_text(path: Path) -> Text:
    """The lines of a UTF-8 file, gzip or plain; InputError if the file is empty or not UTF-8."""
    data = read_bytes(path)
    last = len(data.rstrip())  # blank lines by the million take no room
    end = data.find(b"\n", last)
    data = data if end < 0 else data[:end]
    check_lines(line_ends(data), path)
    lines = _decoded(data, path).replace("\r\n", "\n").split("\n")
    if not last:
        raise InputError("the file is empty", where=path.name)
    return Text(path.name, lines)


def row_error(
    name: str,
    line: int,
    what: str,
    value: object = None,
    limit: object = None,
    remedy: str | None = None,
) -> InputError:
    """An InputError at a 1-based line of a file."""
    return InputError(what, where=f"{name}, line {line}", value=value, limit=limit, remedy=remedy)


def _unpacked(data: bytes, path: Path, most_bytes: int) -> bytes:
    """Unpack all members of a gzip file, concatenated.

    The size and the number of lines are checked in a first pass that stores nothing, so a gzip bomb
    takes no memory.
    """
    most_bytes = min(most_bytes, max(len(data) * MOST_TIMES, SMALL_BYTES))
    size = lines = 0
    for part in _parts(data, path):
        size, lines = size + len(part), lines + line_ends(part)
        _check_size(size, path, most_bytes, "unpack it first, if it is sound")
        check_lines(lines, path)
    return b"".join(_parts(data, path))


def _parts(data: bytes, path: Path) -> Iterator[bytes]:
    at = 0
    while data.startswith(GZIP, at):
        member = zlib.decompressobj(_GZIP_FORM)
        while not member.eof:
            piece = data[at : at + PIECE_BYTES]
            if not piece:
                raise InputError("broken gzip: it ends too early", where=path.name)
            try:
                part = member.decompress(piece)
            except zlib.error as error:
                raise InputError(f"broken gzip: {error}", where=path.name) from None
            at += len(piece) - len(member.unused_data)
            yield part


def line_ends(data: bytes) -> int:
    """A lower bound on the number of lines, counted in bytes that end a line."""
    return len(data) - len(data.translate(None, LINE_ENDS))


def check_lines(count: int, path: Path) -> None:
    """InputError for more lines than `MOST_LINES`: a small gzip file may unpack to billions."""
    if count > MOST_LINES:
        raise InputError(
            "too many lines", where=str(path), value=f"{count:,}", limit=f"{MOST_LINES:,}"
        )


def _check_size(size: int, path: Path, most_bytes: int, remedy: str | None = None) -> None:
    if size > most_bytes:
        raise InputError(
            "the file is too large", where=str(path), limit=f"{most_bytes:,} bytes", remedy=remedy
        )
