"""Fields for rarely used parts of a summary: the part's class is imported only when the part is
read.
"""

from functools import partial
from typing import Annotated, Any

from pydantic import PlainValidator, TypeAdapter

from kvsim.plumbing.places import standing_at


def late(place: str) -> Any:
    """The type annotation of such a field. place: the part's class as "module:Class"."""
    return Annotated[Any, PlainValidator(partial(_read, place))]


def _read(place: str, value: Any) -> Any:
    return TypeAdapter(standing_at(place)).validate_python(value)
