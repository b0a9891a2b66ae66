"""Hashes of blocks as small numbers, in the order in which they are first met.

A prompt's new blocks then have consecutive ids, which a stream keeps as one run.
"""

from collections.abc import Iterable
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.workload.traces.record import HashIds


class SmallIds:
    """Hands out ids. Hashes depend on all tokens before them, so that equal hashes are equal
    beginnings.
    """

    def __init__(self) -> None:
        self._known: dict[int | str | bytes, int] = {}

    def of(self, hashes: Iterable[Any], where: str) -> HashIds:
        """The ids of a prompt's blocks; InputError for what cannot be a hash."""
        found = []
        for value in hashes:
            if isinstance(value, bool) or not isinstance(value, int | str | bytes):
                raise InputError("not a hash", where=where, value=value)
            found.append(self._known.setdefault(value, len(self._known)))
        return tuple(found)
