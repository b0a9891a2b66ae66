"""The lines of a TOML file on which its keys stand, for errors to name."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kvsim.plumbing.errors import MISSING, InputError
from kvsim.plumbing.reading.files import read_string
from kvsim.plumbing.reading.toml_text import MOST_BYTES, loads

_HEADER = r"(\[\[?)([^\[\]#]+)\]"
_ENTRY = r"([\w.\"' -]+)="

KeyPath = tuple[str, ...]


def placed(error: InputError, file: Path, overridden: Iterable[str] = ()) -> InputError:
    """The same error with the file and the line of the key that it names.

    The label or kind of the array's item with the key is added.

    An error about anything else, or about one of the `overridden` keys, which the file does not
    set, is unchanged.
    """
    named = tuple((error.where or "").split("."))
    for key in overridden:
        if key.split(".")[0] == named[0] and key.rpartition(".")[2] == named[-1]:
            return error
    text = read_string(file, MOST_BYTES)
    path, item = _item(loads(text), named)
    line = line_of(text, path)
    if line is None and error.what != MISSING:
        return error
    place = str(file) if line is None else f"{file}:{line}"  # a missing table has no line
    item_name = f" ({named[0]} '{item}')" if item else ""
    return error.at(f"{place}: {error.where}{item_name}")


def _item(table: dict[str, Any], named: KeyPath) -> tuple[KeyPath, str]:
    """The path of a key, with the index that a list of one leaves out, and the name of the list's
    item.
    """
    items = table.get(named[0])
    if not isinstance(items, list):
        return named, ""
    first, *rest = named
    if not rest or not rest[0].isdecimal():
        rest.insert(0, "0")
    index = int(rest[0])
    item = items[index] if index < len(items) and isinstance(items[index], dict) else {}
    return (first, *rest), str(item.get("label", item.get("kind", "")))


def line_of(text: str, path: KeyPath) -> int | None:
    """The number of the line, from 1, with the deepest part of a path that the text has.

    An item of an array of tables goes by its index from 0. None: not even the first key is there.
    """
    found, depth = None, 0
    for number, keys in _lines(text):
        if len(keys) > depth and keys == path[: len(keys)]:
            found, depth = number, len(keys)
    return found


def _lines(text: str) -> Iterator[tuple[int, KeyPath]]:
    """Each line that begins a table or gives a key its value, with the path of what it begins."""
    table: KeyPath = ()
    items: Counter[KeyPath] = Counter()
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if header := re.match(_HEADER, line):
            table = _keys(header[2])
            if header[1] == "[[":
                items[table] += 1
                table = (*table, str(items[table] - 1))
            else:
                table = _of_last_item(table, items)
            yield number, table
        elif entry := re.match(_ENTRY, line):
            yield number, (*table, *_keys(entry[1]))


def _of_last_item(table: KeyPath, items: Counter[KeyPath]) -> KeyPath:
    """The path of a table below an array of tables: it belongs to the array's last item."""
    for depth in range(len(table) - 1, 0, -1):
        if (array := table[:depth]) in items:
            return (*array, str(items[array] - 1), *table[depth:])
    return table


def _keys(dotted: str) -> KeyPath:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
