"""A registry maps the names that users write, such as `paged`, to the classes that implement them.

An entry is a line `"name": "module:Class"`. The module is imported when the name is first used, so
a hundred entries cost nothing at start-up. An installed package can add entries as entry points of
the group `kvsim.WHAT` (`kvsim.allocator`, `kvsim.victim`, ...). These are searched only for names
that kvsim itself does not register.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Generic, TypeVar, cast

from kvsim.plumbing.errors import MISSING, InputError, InvariantError
from kvsim.plumbing.options import Options
from kvsim.plumbing.places import standing_at

T = TypeVar("T", bound=Options)


class Registry(Generic[T]):
    """Maps names to Options classes of one kind (`what`: "allocator", "placement", ...).

    former_names are earlier values of `what`; entry points in their groups are found too.
    """

    def __init__(
        self, what: str, entries: Mapping[str, str], former_names: tuple[str, ...] = ()
    ) -> None:
        self.what = what
        self._names = (what, *former_names)
        self._own = dict(entries)
        self._all: dict[str, str] | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the entry point groups in which other packages register."""
        return tuple(f"kvsim.{name.replace(' ', '-')}" for name in self._names)

    def _entries(self) -> dict[str, str]:
        """Entries of kvsim and of installed packages; kvsim's take precedence."""
        if self._all is None:
            from importlib.metadata import entry_points

            installed = entry_points()
            found = [point for group in self.groups for point in installed.select(group=group)]
            self._all = self._own | {point.name: point.value for point in found} | self._own
        return self._all

    def __iter__(self) -> Iterator[str]:
        """All names, kvsim's first."""
        return iter(self._entries())

    @property
    def own(self) -> tuple[str, ...]:
        """The names that kvsim itself registers."""
        return tuple(self._own)

    def get(self, name: str, where: str | None = None, beside: tuple[str, ...] = ()) -> type[T]:
        """The class registered under `name`; InputError lists the valid names.

        `beside`: further names that the caller accepts, added to that list.
        """
        target = None
        if isinstance(name, str):
            target = self._own.get(name) or self._entries().get(name)
        if target is None:
            close = get_close_matches(str(name)[:80], (*beside, *self._entries()), n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise InputError(
                f"unknown {self.what}",
                where=where,
                value=repr(name),
                remedy=f"{hint}known: {', '.join((*beside, *self))}",
            )
        return cast("type[T]", standing_at(target))

    def name_of(self, options: Options) -> str:
        """The name under which the options' class is registered: the `kind` of its table."""
        target = f"{type(options).__module__}:{type(options).__qualname__}"
        # Other packages are asked last: to look through all that is installed takes its time.
        entries = self._own if target in self._own.values() else self._entries()
        for name, entry in entries.items():
            if entry == target:
                return name
        raise InvariantError(f"{target} is no registered {self.what}")

    def parse(self, table: Mapping[str, Any], where: str, default: str | None = None) -> T:
        """Parse a table: `kind` (or `default`) chooses the class, the other keys are its fields."""
        if not isinstance(table, Mapping):
            raise InputError("not a table", where=where, value=table)
        rest = dict(table)
        kind = rest.pop("kind", default)
        if kind is None:
            raise InputError(
                MISSING,
                where=f"{where}.kind",
                remedy=f"known: {', '.join(self)}",
            )
        return self.get(kind, f"{where}.kind").parse(rest, where)
