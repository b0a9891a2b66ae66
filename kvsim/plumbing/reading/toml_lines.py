"""Line numbers of keys in a TOML file, for error messages."""

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
    """The error with the file and the line of its key added.

    If the key is in an item of an array of tables, the item's label or kind is added too. An error
    about anything but a key of the file is returned unchanged. So is one about an `overridden` key,
    which the command line set.
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
    """The full path of a key, and the label or kind of the array's item that contains it (""
    without one).

    An error omits the index of the only item of a list; the full path has it.
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
    """The 1-based number of the line that has the deepest existing part of a key's path.

    An item of an array of tables is given by its index from 0. None: the file lacks even the first
    key.
    """
    found, depth = None, 0
    for number, keys in _lines(text):
        if len(keys) > depth and keys == path[: len(keys)]:
            found, depth = number, len(keys)
    return found


def _lines(text: str) -> Iterator[tuple[int, KeyPath]]:
    """(line number, key path) of each line that begins a table or sets a key."""
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
    """The path of a sub-table `[a.b]` below an array `[[a]]`, which belongs to the last item of
    `a`.
    """
    for depth in range(len(table) - 1, 0, -1):
        if (array := table[:depth]) in items:
            return (*array, str(items[array] - 1), *table[depth:])
    return table


def _keys(dotted: str) -> KeyPath:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
