"""One record of a trace and its position: a CSV row by its columns, or the JSON object on a
line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.csv_rows import columns, header_of, numbered_rows
from kvsim.plumbing.reading.files import Text, row_error
from kvsim.plumbing.units import ceil_div
from kvsim.workload.text import json_object, scaled_time, whole_number
from kvsim.workload.traces.record import LARGEST_ID, HashIds, TraceItems

LOOK_AT = 50  # lines; one short prompt alone does not tell the block size


class Line:
    """One record. values: the fields by column or key; values that are not text are JSON. name: the
    file; number: the line in it, from 1 on.
    """

    __slots__ = ("name", "number", "values")

    def __init__(self, values: Mapping[str, Any], name: str, number: int) -> None:
        self.values = values
        self.name = name
        self.number = number

    def error(
        self, what: str, value: object = None, limit: object = None, remedy: str | None = None
    ) -> InputError:
        """An InputError at this line."""
        return row_error(self.name, self.number, what, value, limit, remedy)

    def get(self, key: str) -> Any:
        """The value of a key; None if it is missing."""
        return self.values.get(key)

    def required(self, key: str) -> Any:
        """The value of a required key; InputError if it is missing."""
        if self.values.get(key) is None:
            raise self.error(f"{key} is missing", f"keys {', '.join(self.values)}")
        return self.values[key]

    def tokens(self, key: str) -> int:
        """A required token count, >= 0."""
        return whole_number(self.required(key), self.name, self.number, key, 0)

    def time(self, key: str, unit_ps: int) -> int:
        """A required time in ps; the file counts in units of `unit_ps`."""
        return scaled_time(self.required(key), unit_ps, self.name, self.number, key)

    def number_of(self, key: str, otherwise: object = None) -> int:
        """An integer of either sign. otherwise: the value if the key is missing; None: a missing
        key is an error.
        """
        value = self.required(key) if otherwise is None else self.values.get(key, otherwise)
        if type(value) is not int:
            raise self.error(f"{key} is not a whole number", value)
        return value

    def items(self, prompt_tokens: int) -> TraceItems:
        """`items`: placeholders of images, sounds and videos inside the prompt, without overlap; ()
        if there are none.
        """
        items: list[tuple[int, int, str]] = []
        end = 0
        for each in self.values.get("items") or ():
            if not isinstance(each, list) or len(each) != 3 or type(each[2]) is not str:
                raise self.error("an item is not [tokens before, tokens, name]", each)
            start, tokens, name = each
            if type(start) is not int or type(tokens) is not int or start < end or tokens < 1:
                raise self.error("an item does not follow the one before", each)
            end = start + tokens
            if end > prompt_tokens:
                raise self.error("an item ends behind the prompt", each, prompt_tokens)
            items.append((start, tokens, name))
        return tuple(items)

    def adapter(self) -> str | None:
        """`adapter`: the name of a LoRA adapter; None if there is none."""
        name = self.values.get("adapter")
        if name is not None and type(name) is not str:
            raise self.error("adapter is not a name", name)
        return name

    def hash_ids(self, prompt_tokens: int, block_tokens: int) -> HashIds | None:
        """The hash ids of a prompt's blocks; a partial last block may have an id or not.

        None if the record has no ids.
        """
        ids = self.values.get("hash_ids")
        if ids is None:
            return None
        if not isinstance(ids, list):
            raise self.error("hash_ids is not a list", ids)
        for item in ids:
            if type(item) is not int or not 0 <= item < LARGEST_ID:
                raise self.error("a hash id is not a whole number", item, "0 to 2^62")
        expected = ceil_div(prompt_tokens, block_tokens)
        if len(ids) not in (prompt_tokens // block_tokens, expected):
            raise self.error(
                f"hash_ids do not fit a prompt of {prompt_tokens} tokens",
                f"{len(ids)} ids",
                f"{expected} of {block_tokens} tokens",
                "name the format, or set hash_block_tokens to the trace's block size",
            )
        return tuple(ids)


def csv_lines(text: Text, names: Sequence[str], optional: Sequence[str] = ()) -> Iterator[Line]:
    """Yield each row below the header with only the named columns; InputError for a missing column,
    unless it is optional.
    """
    header = header_of(text.lines[0])
    places = dict(zip(names, columns(text, names), strict=True))
    places |= {name: header.index(name) for name in optional if name in header}
    for number, fields in numbered_rows(text):
        yield Line({name: fields[place] for name, place in places.items()}, text.name, number)


def json_lines(text: Text) -> Iterator[Line]:
    """Yield the JSON object on each line."""
    for number, content in enumerate(text.lines, 1):
        yield Line(json_object(content, text.name, number), text.name, number)


def first_objects(lines: list[str]) -> list[dict[str, Any]]:
    """The objects on the first lines; [] if a line holds none."""
    try:
        return [json_object(line, "", 1) for line in lines[:LOOK_AT]]
    except InputError:
        return []


def fits(records: Iterable[dict[str, Any]], block_tokens: int) -> bool:
    """Whether every record has as many hash_ids as its input_length has blocks of block_tokens."""
    for record in records:
        ids, prompt = record.get("hash_ids"), record.get("input_length")
        if not isinstance(ids, list) or type(prompt) is not int:
            continue
        if len(ids) not in (prompt // block_tokens, ceil_div(prompt, block_tokens)):
            return False
    return True
