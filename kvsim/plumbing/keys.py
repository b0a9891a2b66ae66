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
    return key.strip(), value_of(value)


def put(table: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set one key of nested tables, made where they are missing; items of lists by their index
    (`allocator.0.block_size`). InputError where there is no such item, or no table.
    """
    parts = key.split(".")
    place: Any = table
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        if isinstance(place, list):
            if not part.isdigit() or int(part) >= len(place):
                raise InputError(
                    "no such item", where=f"{where} {key}", value=part, limit=len(place) - 1
                )
            index: Any = int(part)
        elif isinstance(place, dict):
            index = part
            if not last and not isinstance(place.get(part), dict | list):
                place[part] = {}
        else:
            raise InputError("not a table", where=f"{where} {key}", value=place)
        if last:
            place[index] = value
        else:
            place = place[index]
