"""What the JSON-lines formats share: looking at the first lines, and hashed prompt blocks."""

from collections.abc import Iterable, Iterator
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import Text, row_error
from kvsim.plumbing.units import ceil_div
from kvsim.workload.text import json_object, whole_number
from kvsim.workload.traces.record import LARGEST_ID, HashIds

LOOK_AT = 50  # lines; one short prompt alone does not tell the block size


def first_objects(lines: list[str]) -> list[dict[str, Any]]:
    """The objects on the first lines; [] if a line holds none."""
    try:
        return [json_object(line, "", 1) for line in lines[:LOOK_AT]]
    except InputError:
        return []


def numbered_objects(text: Text) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of each line."""
    for line, content in enumerate(text.lines, 1):
        yield line, json_object(content, text.name, line)


def required(record: dict[str, Any], key: str, name: str, line: int) -> Any:
    """The value of a key that must be there."""
    if record.get(key) is None:
        raise row_error(name, line, f"{key} is missing", f"keys {', '.join(record)}")
    return record[key]


def length(record: dict[str, Any], key: str, name: str, line: int) -> int:
    """A length in tokens, 0 allowed here."""
    return whole_number(required(record, key, name, line), name, line, key, 0)


def fits(records: Iterable[dict[str, Any]], block_tokens: int) -> bool:
    """Whether all records' hash_ids are as many as their input_length takes."""
    for record in records:
        ids, prompt = record.get("hash_ids"), record.get("input_length")
        if not isinstance(ids, list) or type(prompt) is not int:
            continue
        if len(ids) not in (prompt // block_tokens, ceil_div(prompt, block_tokens)):
            return False
    return True


def hash_ids(
    value: object, prompt_tokens: int, block_tokens: int, name: str, line: int
) -> HashIds | None:
    """The ids of a prompt's blocks; the last one may be cut short, or missing if it would be.

    None where the record has none.
    """
    if value is None:
        return None
    if not isinstance(value, list):
        raise row_error(name, line, "hash_ids is not a list", value)
    for item in value:
        if type(item) is not int or not 0 <= item < LARGEST_ID:
            raise row_error(name, line, "a hash id is not a whole number", item, "0 to 2^62")
    expected = ceil_div(prompt_tokens, block_tokens)
    if len(value) not in (prompt_tokens // block_tokens, expected):
        raise row_error(
            name,
            line,
            f"hash_ids do not fit a prompt of {prompt_tokens} tokens",
            f"{len(value)} ids",
            f"{expected} of {block_tokens} tokens",
            "name the format, or set hash_block_tokens to the trace's block size",
        )
    return tuple(value)
