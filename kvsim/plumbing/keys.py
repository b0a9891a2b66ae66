"""Keys of nested tables by their dotted names, as `--set` and `--vary` write them."""

from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.toml_text import value_of


def assignment(text: str, where: str) -> tuple[str, Any]:
    """`a.b=value` as its key and its value, as TOML reads it; InputError, found at `where`, for any
    other form.
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
    """Set one key of nested tables, made where they are missing. An item of a list goes by its
    label or kind (`allocator.paged.block_size`), or by its index from 0 (`allocator.2.block_size`).
    InputError where there is no such item, or no table.
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
    """The place in a list of the item with this index, label or kind; InputError, found at `where`,
    for none or several.
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
    """Names of an item of a list other than its index."""
    if isinstance(item, str):
        return [item]
    held = item if isinstance(item, dict) else {}
    return [str(held[key]) for key in ("label", "kind") if key in held]
