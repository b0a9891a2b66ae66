"""A field that is a table with a `kind`: `arrivals = {kind = "poisson", ...}`."""

from collections.abc import Mapping
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.registry import Registry

CHOICE = "x-kvsim-choice"  # in a JSON schema: stands for the kinds that a `OneOf` has


class OneOf:
    """Annotation of an Options field that one of a registry's classes reads, chosen by the table's
    `kind`.

    where is the key's full name in the scenario, for error messages. default is the kind of a table
    without `kind`.
    """

    def __init__(self, registry: Registry[Any], where: str, default: str | None = None) -> None:
        self.registry = registry
        self.where = where
        self.default = default

    def __get_pydantic_core_schema__(
        self, source: type[Options], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Validate a table with its kind's class; serialise the options as a table with that
        `kind`.
        """
        return core_schema.no_info_before_validator_function(
            self.read,
            core_schema.is_instance_schema(source),
            serialization=core_schema.plain_serializer_function_ser_schema(self._write),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """A placeholder, because the tables of a registry's kinds may contain the same registry
        again.
        """
        return {CHOICE: self}

    def keys_beside(self) -> dict[str, "OneOf"]:
        """Further keys of the table, valid for any kind, each of them a `OneOf` too."""
        return {}

    def read(self, value: object) -> object:
        """Options for a table, or for a kind's name alone (all keys default). Options are returned
        unchanged.
        """
        if isinstance(value, str):
            return self.registry.parse({"kind": value}, self.where)
        if isinstance(value, Mapping):
            return self.registry.parse(value, self.where, self.default)
        if not isinstance(value, Options):
            remedy = "give a table, or the name of a kind"
            raise InputError("not a table", where=self.where, value=value, remedy=remedy)
        return value

    def _write(self, value: Options) -> dict[str, Any]:
        return {"kind": self.registry.name_of(value), **value.model_dump(exclude_none=True)}


class NameOf:
    """Annotation of a text field with a name that must be registered in `registry`. where: key in
    error messages.
    """

    def __init__(self, registry: Registry[Any], where: str) -> None:
        self.registry = registry
        self.where = where

    def __get_pydantic_core_schema__(
        self, source: type[str], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"enum": list(self.registry)}

    def _check(self, name: str) -> str:
        self.registry.get(name, self.where)
        return name
