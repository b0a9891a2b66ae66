"""JSON lines: one value per line, unsigned 64-bit hashes allowed, and one-line errors with their
place.
"""

from collections.abc import Iterator
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import JsonError, loads
from kvsim.readers.parsing.fields import Fields
from kvsim.readers.parsing.ledger import SourceLedger


def values(data: bytes, name: str) -> Iterator[tuple[str, Any]]:
    """(place, value) of each non-empty line."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            yield where, loads(line, unsigned=True)
        except JsonError as fault:
            raise InputError(f"not JSON: {fault}", where=where) from None


def numbered(
    data: bytes, name: str, ledger: SourceLedger | None = None, path: str = ""
) -> Iterator[Fields]:
    """The object on each non-empty line. path is the lines' path in the ledger."""
    for where, value in values(data, name):
        if not isinstance(value, dict):
            raise InputError("not a JSON object", where=where)
        yield Fields(value, where, ledger, path)
