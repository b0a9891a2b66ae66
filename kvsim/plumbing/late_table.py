"""An optional table of a scenario; the module of its class is imported only if the table is
present.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.places import standing_at

LATE = "x-kvsim-late"  # in a JSON schema: stands for the table of a `LateTable`


class LateTable:
    """Annotation of an Options field. place is the table's class, as "module:Class". where is the
    table's name in the scenario, for error messages.
    """

    def __init__(self, place: str, where: str) -> None:
        self._place = place
        self.where = where

    @property
    def options(self) -> type[Options]:
        """The Options class of the table, imported on first use."""
        found: type[Options] = standing_at(self._place)
        return found

    def __get_pydantic_core_schema__(
        self, source: type[Options], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Validate the table with its class; serialise it as the class does."""
        return core_schema.no_info_before_validator_function(
            self.read, core_schema.any_schema(), json_schema_input_schema=core_schema.any_schema()
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """A placeholder: the class's JSON schema has definitions that belong at the top level."""
        return {LATE: self}

    def read(self, value: object) -> object:
        """Options for a table. Options of the class, and None, are returned unchanged."""
        if isinstance(value, Mapping):
            return self.options.parse(value, self.where)
        if value is not None and not isinstance(value, self.options):
            raise InputError("not a table", where=self.where, value=value, remedy="give a table")
        return value


def late(place: str, where: str) -> Any:
    """The annotation for a field with a `LateTable`."""
    return Annotated[Options, LateTable(place, where)]
