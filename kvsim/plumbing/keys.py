"""Set keys of nested tables by dotted name, as `--set` and `--vary` write them:
`allocator.paged.block_size=32`.
"""

from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.toml_text import value_of


def assignment(text: str, where: str) -> tuple[str, Any]:
    """Split `a.b=value` into key and value, with the value parsed as TOML. InputError, with
    `where`, for any other form.
    """
    key, equals, value = text.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise InputError("not of the form a.b=value", where=where, value=text)
    found = value_of(value)
    if isinstance(found, str) and value.strip()[:1] in ("{", "[") and found == value.strip():
        raise InputError(
            "not a value as TOML has them", where=f"{where} {key.strip()}", value=found
        )
    return key.strip(), found


def put(table: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set one key of nested tables; missing tables are added.

    A list's item is chosen by its label or kind (`allocator.paged.block_size`), or by its index
    from 0 (`allocator.2.block_size`). InputError if there is no such item, or the key leads through
    a value that is not a table.
    """
    parts = key.split(".")
    place: Any = table
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        if isinstance(place, list):
            index: Any = item_index(place, part, f"{where} {key}")
        elif isinstance(place, dict):
            if not last and part not in place and part in _names(place):
                continue  # a table alone, where a list of them could be
            index = part
            if not last and not isinstance(place.get(part), dict | list):
                place[part] = {}
        else:
            raise InputError("not a table", where=f"{where} {key}", value=place)
        if last:
            place[index] = value
        else:
            place = place[index]


def item_index(items: list[Any], part: str, where: str) -> int:
    """Index of the list's item with this index, label or kind; InputError, with `where`, if none or
    several match.
    """
    if part.isdecimal() and int(part) < len(items):
        return int(part)
    called = [_names(item) for item in items]
    found = [index for index, names in enumerate(called) if part in names]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{index} ({'; '.join(names)})" for index, names in enumerate(called))
    raise InputError(
        "several items of that name" if found else "no such item",
        where=where,
        value=part,
        remedy=f"items by index, from 0, and what else they go by: {known}",
    )


def _names(item: Any) -> list[str]:
    """Label and kind of a list's item: the names by which it can be chosen."""
    if isinstance(item, str):
        return [item]
    held = item if isinstance(item, dict) else {}
    return [str(held[key]) for key in ("label", "kind") if key in held]
