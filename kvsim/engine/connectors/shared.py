"""Tiers that several replicas of a fleet share."""

from collections.abc import Callable
from typing import Any, TypeVar

from kvsim.plumbing.errors import InputError

T = TypeVar("T")


class Shared:
    """The shared tiers of one fleet by name, each made by the replica that asks first."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[str, Any]] = {}

    def part(self, where: str, kind: str, make: Callable[[], T]) -> T:
        """Return the shared tier that the option at `where` asks for; the first call makes it with
        `make`.

        kind: must be equal for all replicas that share the tier; InputError where it differs.
        """
        first, found = self._parts.setdefault(where, (kind, None))
        if kind != first:
            raise InputError(
                "replicas that share a tier have units of one size, and one link to it",
                where=where,
                value=kind,
                limit=first,
                remedy="give all groups the same, or leave it out",
            )
        if found is None:
            found = make()
            self._parts[where] = first, found
        part: T = found
        return part
