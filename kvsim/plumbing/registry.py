"""A registry maps the name a user writes to the class that does it.

An entry is a line `"name": "module:Class"`; the module is imported when the name is first used, so
that a hundred entries cost nothing at start-up.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options

T = TypeVar("T", bound=Options)


class Registry(Generic[T]):
    """Names to Options classes of one kind (`what`: "allocator", "placement", ...)."""

    def __init__(self, what: str, entries: Mapping[str, str]) -> None:
        self.what = what
        self._entries = dict(entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def get(self, name: str, where: str | None = None) -> type[T]:
        """The class registered under `name`; InputError lists the valid names."""
        if name not in self._entries:
            close = get_close_matches(str(name), self._entries, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise InputError(
                f"unknown {self.what}",
                where=where,
                value=repr(name),
                remedy=f"{hint}known: {', '.join(self._entries)}",
            )
        module, _, attribute = self._entries[name].partition(":")
        return cast("type[T]", getattr(import_module(module), attribute))

    def name_of(self, options: Options) -> str:
        """The name under which the class of `options` is registered: the `kind` of its table."""
        target = f"{type(options).__module__}:{type(options).__qualname__}"
        return next(name for name, entry in self._entries.items() if entry == target)

    def parse(self, table: Mapping[str, Any], where: str, default: str | None = None) -> T:
        """The options of a table whose `kind` names the entry; the other keys are its fields."""
        rest = dict(table)
        kind = rest.pop("kind", default)
        if kind is None:
            raise InputError(
                "required key is missing",
                where=f"{where}.kind",
                remedy=f"known: {', '.join(self._entries)}",
            )
        return self.get(kind, f"{where}.kind").parse(rest, where)
