"""A part that few summaries have: its class is imported where the part is read."""

from functools import partial
from importlib import import_module
from typing import Annotated, Any

from pydantic import PlainValidator, TypeAdapter


def late(place: str) -> Any:
    """The annotation of a field with such a part. place: its class, "module:Class"."""
    return Annotated[Any, PlainValidator(partial(_read, place))]


def _read(place: str, value: Any) -> Any:
    module, _, name = place.partition(":")
    return TypeAdapter(getattr(import_module(module), name)).validate_python(value)
