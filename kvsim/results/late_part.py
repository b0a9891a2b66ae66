"""A part that few summaries have: its class is imported where the part is read."""

from functools import partial
from typing import Annotated, Any

from pydantic import PlainValidator, TypeAdapter

from kvsim.plumbing.places import standing_at


def late(place: str) -> Any:
    """The annotation of a field with such a part. place: its class, "module:Class"."""
    return Annotated[Any, PlainValidator(partial(_read, place))]


def _read(place: str, value: Any) -> Any:
    return TypeAdapter(standing_at(place)).validate_python(value)
