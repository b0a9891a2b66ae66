"""Looking things up in a config.json whose keys have many names."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError

REQUIRED = object()


class Keys(NamedTuple):
    """The text decoder's table of a config.json; kind: its model_type; where: for messages."""

    table: Mapping[str, Any]
    kind: str
    where: str

    def get(self, *names: str, default: Any = REQUIRED) -> Any:
        """The first of `names` that has a value; without a default, InputError if none has."""
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

    def integer(self, *names: str, default: int | None = None) -> int:
        """The first of `names` as a whole number >= 1."""
        value = self.get(*names, default=REQUIRED if default is None else default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(
                "not a whole number >= 1", where=f"{self.where}: {names[0]}", value=value
            )
        return value

    def inner(self, name: str) -> "Keys":
        """A nested table (empty if absent)."""
        return Keys(self.table.get(name) or {}, self.kind, f"{self.where}: {name}")
