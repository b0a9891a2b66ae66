"""A placement as a field of an allocator's options: a name, or a table with `kind` and options."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from kvsim.errors import InputError
from kvsim.memory.arena import PLACEMENTS
from kvsim.memory.arena.placement import PlacementOptions


def _parse(value: Any) -> PlacementOptions:
    if isinstance(value, PlacementOptions):
        return value
    table = {"kind": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        raise ValueError("a placement is a name or a table with a `kind`")
    try:
        return PLACEMENTS.parse(table, "placement")
    except InputError as error:
        raise ValueError(f"{error}") from None


def _dump(options: PlacementOptions) -> dict[str, Any]:
    return {"kind": PLACEMENTS.name_of(options), **options.model_dump(exclude_none=True)}


PlacementChoice = Annotated[PlacementOptions, BeforeValidator(_parse), PlainSerializer(_dump)]
