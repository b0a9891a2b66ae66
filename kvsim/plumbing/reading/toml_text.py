"""TOML from a file or the command line, with bounded depth and numbers that fit 64 bits."""

import tomllib
from pathlib import Path
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import read_string

MOST_BYTES = 1 << 20
MOST_DEPTH = 32
LARGEST = (1 << 63) - 1  # TOML's own limit


class TomlError(ValueError):
    """Text that kvsim does not accept as TOML; the message says why."""


def loads(text: str) -> dict[str, Any]:
    """Parse TOML text; TomlError if it is invalid, too deeply nested, or has an integer beyond 64
    bits.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(str(error)) from None
    except RecursionError:
        raise TomlError(_TOO_DEEP) from None
    except ValueError as error:  # a date or a number that Python cannot hold
        raise TomlError(str(error)) from None
    _check(table)
    return table


def read_table(path: Path) -> dict[str, Any]:
    """Parse a TOML file; InputError if it is invalid."""
    try:
        return loads(read_string(path, MOST_BYTES))
    except TomlError as fault:
        raise InputError(f"not readable as TOML: {fault}", where=str(path)) from None


def value_of(text: str) -> Any:
    """Parse a word as a TOML value; if that fails, return the word itself."""
    try:
        table = loads(f"value = {text}")
    except TomlError:
        return text.strip()
    return table["value"] if table.keys() == {"value"} else text.strip()


_TOO_DEEP = f"nested more than {MOST_DEPTH} levels deep"


def _check(table: dict[str, Any]) -> None:
    level: list[Any] = [table]
    for _ in range(MOST_DEPTH):
        children = [
            child for each in level for child in (each.values() if isinstance(each, dict) else each)
        ]
        for child in children:
            if isinstance(child, int) and not -LARGEST - 1 <= child <= LARGEST:
                raise TomlError("a whole number is beyond 64 bits")
        level = [child for child in children if isinstance(child, dict | list)]
        if not level:
            return
    raise TomlError(_TOO_DEEP)
