"""Convert block hashes to small integers, in order of first appearance.

The new blocks of a prompt then have consecutive ids, which a stream stores as one run.
"""

from collections.abc import Iterable
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.workload.traces.record import HashIds


class HashedBlocks:
    """The hashed blocks of a file. A block's hash covers all tokens up to its end, so equal hashes
    mean equal prefixes.

    called is what the file calls its blocks, for messages.
    """

    def __init__(self, called: str = "blocks") -> None:
        self._called = called
        self._known: dict[int | str | bytes, int] = {}
        self._sizes: set[int] = set()

    def ids(self, hashes: Iterable[Any], block_tokens: int, where: str) -> HashIds:
        """The integer ids of a prompt's blocks; InputError for a value that cannot be a hash."""
        self._sizes.add(block_tokens)
        found = []
        for value in hashes:
            if isinstance(value, bool) or not isinstance(value, int | str | bytes):
                raise InputError("not a hash", where=where, value=value)
            found.append(self._known.setdefault(value, len(self._known)))
        return tuple(found)

    def tokens(self, where: str) -> int | None:
        """Tokens per block; None if no prompt was hashed. InputError if block sizes differ."""
        if len(self._sizes) > 1:
            what = f"{self._called} of several sizes"
            raise InputError(what, where=where, value=sorted(self._sizes))
        return next(iter(self._sizes), None)
