"""The three operations of SGLang's storage servers: queries, reads and writes
(mem_cache/storage_prefetch.py, managers/cache_controller.py, 0.5.23).
"""

from collections.abc import Callable
from typing import Any

from kvsim.engine.hicache.servers import StorageOperation
from kvsim.engine.hicache.storage_times import StorageTimes
from kvsim.memory.radix.node import HostLock, Node
from kvsim.sequence import Sequence

BATCH_PAGES = 128


Log = Callable[[list[Any]], None]


class Prefetch:
    """The storage lookup of a waiting request: pages `keys` after its first `begin` tokens, which
    the tree node `anchor` ends.

    assumed: an earlier lookup found all pages, so the storage is not queried again. lock: pins the
    anchor in host memory. found: number of leading pages in the storage; None before the answer.
    taken: pages of host memory allocated for them. read: number of these that are read. cut_ps:
    when the request went on without the remaining pages; None if not. skipped_ps: when admission
    first skipped the request.
    """

    def __init__(
        self, seq: Sequence, anchor: Node, begin: int, keys: list[int], *, assumed: bool
    ) -> None:
        self.seq = seq
        self.anchor = anchor
        self.begin = begin
        self.keys = keys
        self.assumed = assumed
        self.lock: HostLock | None = None
        self.found: int | None = None
        self.taken = 0
        self.read = 0
        self.cut_ps: int | None = None
        self.skipped_ps: int | None = None

    @property
    def cut(self) -> bool:
        """Whether the request went on without the remaining pages."""
        return self.cut_ps is not None

    def cut_by(self, now_ps: int) -> bool:
        """Whether the request had gone on without the remaining pages by now_ps.

        A pass that waits for copies may cut later than it began; batches that servers began in
        between continue.
        """
        return self.cut_ps is not None and self.cut_ps <= now_ps


class StorageQuery(StorageOperation):
    """A query for all pages of a lookup in one call. It takes no time for a lookup that was cut or
    is `assumed`. answered: called with the lookup.
    """

    def __init__(
        self,
        lookup: Prefetch,
        times: StorageTimes,
        stored: set[int],
        answered: Callable[[Prefetch], None],
        log: Log,
    ) -> None:
        self._lookup = lookup
        self._times = times
        self._stored = stored
        self._answered = answered
        self._log = log
        self._asked = False

    def next_ps(self, start_ps: int) -> int | None:
        if self._asked:
            return None
        self._asked, lookup = True, self._lookup
        if lookup.cut_by(start_ps) or lookup.assumed:
            lookup.found = len(lookup.keys)
            self._answered(lookup)
            return None
        self.pages = len(lookup.keys)
        return self._times.query_ps(self.pages)

    def done(self, end_ps: int) -> None:
        lookup, found = self._lookup, 0
        while found < len(lookup.keys) and lookup.keys[found] in self._stored:
            found += 1
        lookup.found = found
        self._log(["exists", end_ps, len(lookup.keys), found])
        self._answered(lookup)


class StorageRead(StorageOperation):
    """Reads a lookup's pages into host memory in batches.

    ended: called with the lookup after its last batch, or when it was cut.
    """

    def __init__(
        self, lookup: Prefetch, times: StorageTimes, ended: Callable[[Prefetch], None], log: Log
    ) -> None:
        self._lookup = lookup
        self._times = times
        self._ended = ended
        self._log = log
        self._done = 0

    def next_ps(self, start_ps: int) -> int | None:
        lookup = self._lookup
        self.pages = 0 if lookup.cut_by(start_ps) else min(BATCH_PAGES, lookup.taken - self._done)
        if not self.pages:
            self._ended(lookup)
            return None
        return self._times.read_ps(self.pages)

    def done(self, end_ps: int) -> None:
        lookup = self._lookup
        self._done += self.pages
        self._log(["get", end_ps, self.pages, self.pages])
        if not lookup.cut:
            lookup.read += self.pages


class StorageWrite(StorageOperation):
    """Writes the pages of a tree node into the storage in batches.

    ended: called at the end with the lock that pins the node in host memory.
    """

    def __init__(
        self,
        keys: list[int],
        lock: HostLock,
        times: StorageTimes,
        stored: set[int],
        ended: Callable[[HostLock], None],
        log: Log,
    ) -> None:
        self._keys = keys
        self._lock = lock
        self._times = times
        self._stored = stored
        self._ended = ended
        self._log = log
        self._done = 0

    def next_ps(self, start_ps: int) -> int | None:
        self.pages = min(BATCH_PAGES, len(self._keys) - self._done)
        return self._times.store_ps(self.pages) if self.pages else None

    def done(self, end_ps: int) -> None:
        batch = self._keys[self._done : self._done + BATCH_PAGES]
        new = len(set(batch) - self._stored)
        self._stored.update(batch)
        self._done += len(batch)
        self._log(["set", end_ps, len(batch), new])
        if self._done == len(self._keys):
            self._ended(self._lock)
