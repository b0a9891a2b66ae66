"""The three operations of SGLang's servers before a storage: queries, reads and writes
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
    """A storage lookup of a waiting request: the pages with `keys` after its first `begin` tokens,
    which end in `anchor`.

    assumed: an earlier lookup found all of it, so that the storage is not asked. lock: keeps the
    anchor in host memory. found: leading pages that are there, None before the answer. taken: pages
    of host memory that it has for them; read: into these. cut_ps: when the request went on without
    the rest. skipped_ps: when admission first skipped it.
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
        """Whether the request went on without the rest."""
        return self.cut_ps is not None

    def cut_by(self, now_ps: int) -> bool:
        """Whether that was so at that time. A pass that waits for copies cuts later than it began,
        and what the servers began in between goes on.
        """
        return self.cut_ps is not None and self.cut_ps <= now_ps


class StorageQuery(StorageOperation):
    """One call for all pages; none for a lookup that was cut before, or needs no answer. answered:
    called with the lookup.
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
    """Batches of pages into host memory. ended: called with the lookup when the last is read, or
    none follows because the lookup was cut.
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
    """Batches of pages of a node into the storage. ended: called with the lock that keeps the node
    in host memory meanwhile.
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
