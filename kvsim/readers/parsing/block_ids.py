"""Hashes of blocks as small numbers, in the order in which they are first met.

A prompt's new blocks then have consecutive ids, which a stream keeps as one run.
"""

from collections.abc import Iterable
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.workload.traces.record import HashIds


class HashedBlocks:
    """The hashed blocks of a file. A hash depends on all tokens before its block's end, so that
    equal hashes are equal beginnings. called: what the file calls its blocks.
    """

    def __init__(self, called: str = "blocks") -> None:
        self._called = called
        self._known: dict[int | str | bytes, int] = {}
        self._sizes: set[int] = set()

    def ids(self, hashes: Iterable[Any], block_tokens: int, where: str) -> HashIds:
        """The ids of a prompt's blocks; InputError for what cannot be a hash."""
        self._sizes.add(block_tokens)
        found = []
        for value in hashes:
            if isinstance(value, bool) or not isinstance(value, int | str | bytes):
                raise InputError("not a hash", where=where, value=value)
            found.append(self._known.setdefault(value, len(self._known)))
        return tuple(found)

    def tokens(self, where: str) -> int | None:
        """Tokens of a block, None where nothing was hashed; InputError for several sizes."""
        if len(self._sizes) > 1:
            what = f"{self._called} of several sizes"
            raise InputError(what, where=where, value=sorted(self._sizes))
        return next(iter(self._sizes), None)
