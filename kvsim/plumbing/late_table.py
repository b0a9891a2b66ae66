"""A table that few scenarios have: its class is imported where the table is there."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.places import standing_at

LATE = "x-kvsim-late"  # in a JSON schema: stands for the table of a `LateTable`


class LateTable:
    """Annotates an Options field. place: the module and the class of the table, "module:Class".
    where: the table's name in the scenario, for error messages.
    """

    def __init__(self, place: str, where: str) -> None:
        self._place = place
        self.where = where

    @property
    def options(self) -> type[Options]:
        """The class of the table."""
        found: type[Options] = standing_at(self._place)
        return found

    def __get_pydantic_core_schema__(
        self, source: type[Options], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Validate by the class; what is written is what its fields write."""
        return core_schema.no_info_before_validator_function(
            self.read, core_schema.any_schema(), json_schema_input_schema=core_schema.any_schema()
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """A stand-in, as the schema of the class has definitions of its own."""
        return {LATE: self}

    def read(self, value: object) -> object:
        """The options of a table; options of the class, and nothing, stay as they are."""
        if isinstance(value, Mapping):
            return self.options.parse(value, self.where)
        if value is not None and not isinstance(value, self.options):
            raise InputError("not a table", where=self.where, value=value, remedy="give a table")
        return value


def late(place: str, where: str) -> Any:
    """The annotation of a field with such a table, or without one."""
    return Annotated[Options, LateTable(place, where)]
