"""JSON, a value a line, with hashes of all 64 bits; every fault one line that names its place."""

from collections.abc import Iterator
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import JsonError, loads
from kvsim.readers.parsing.fields import Fields
from kvsim.readers.parsing.ledger import SourceLedger


def values(data: bytes, name: str) -> Iterator[tuple[str, Any]]:
    """(place, value) of each line that is not empty."""
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
    """The object on each line that is not empty. path: of the lines in the ledger."""
    for where, value in values(data, name):
        if not isinstance(value, dict):
            raise InputError("not a JSON object", where=where)
        yield Fields(value, where, ledger, path)
