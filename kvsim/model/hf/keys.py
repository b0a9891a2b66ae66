"""Lookups in a config.json, where one value has different keys by architecture."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvsim.model.hf.architecture import Architecture
from kvsim.model.hf.well_formed import MOST
from kvsim.plumbing.errors import InputError

REQUIRED = object()


class Keys(NamedTuple):
    """The text decoder's table of a config.json. kind: the model_type, with its `Architecture`;
    where: location for error messages.
    """

    table: Mapping[str, Any]
    kind: str
    where: str
    architecture: Architecture

    def get(self, *names: str, default: Any = REQUIRED) -> Any:
        """The value of the first of `names` that has one; without a default, InputError if none
        has.
        """
        for name in names:
            if self.table.get(name) is not None:
                return self.table[name]
        if default is not REQUIRED:
            return default
        raise InputError(
            f"required key {names[0]!r} is missing",
            where=self.where,
            value=f"model_type {self.kind!r}" if self.kind else None,
            remedy="is it the config.json of a language model?",
        )

    def integer(
        self, *names: str, default: int | None = None, index: int | None = None, most: int = MOST
    ) -> int:
        """The value of the first of `names` as an integer from 1 to `most`. index: number of the
        layer, for values that are lists with one entry for each layer.
        """
        value = _of_layer(self.get(*names, default=REQUIRED if default is None else default), index)
        where = f"{self.where}: {names[0]}"
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError("not a whole number >= 1", where=where, value=value)
        if value > most:
            raise InputError("too large", where=where, value=value, limit=most)
        return value

    def count(self, *names: str, index: int | None = None) -> int:
        """`integer`, but 0 if none of `names` has a value, or if the value is 0."""
        value = _of_layer(self.get(*names, default=0), index)
        return 0 if value in (0, False) else self.integer(*names, index=index)

    def flag(self, *names: str, default: bool = False) -> bool:
        """The value of the first of `names` as a boolean."""
        return bool(self.get(*names, default=default))

    def inner(self, name: str) -> "Keys":
        """A nested table (empty if absent)."""
        table = self.table.get(name)
        table = table if isinstance(table, Mapping) else {}
        return self._replace(table=table, where=f"{self.where}: {name}")

    @property
    def hidden(self) -> int:
        """The hidden size."""
        return self.integer("hidden_size", "n_embd", "d_model", "n_embed")

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return self.integer("num_attention_heads", "n_head", "n_heads")


def _of_layer(value: Any, index: int | None) -> Any:
    """The entry of layer `index` if the value is a list with one entry for each layer; else the
    value.
    """
    if index is not None and isinstance(value, list) and index < len(value):
        return value[index]
    return value
