"""Least recently used, counted in requests: of one request's chunks the tail leaves first.

vLLM 0.33, v1/kv_offload/cpu/policies/lru.py. A request has one rank for all that it does until it
is finished; then each chunk that it touched gets a rank of its own, the head the newest.
"""

from collections.abc import Container
from heapq import heappop, heappush

from kvsim.engine.connectors.offloading.chunk import HostChunk
from kvsim.engine.connectors.offloading.policy import ChunkPolicy
from kvsim.sequence import Sequence

Rank = tuple[int, int]


class LeastRecentlyUsed(ChunkPolicy):
    """Ranks: (number, minus the chunk's end); the lowest leaves first."""

    def __init__(self, capacity: int) -> None:
        self._rank: dict[HostChunk, Rank] = {}
        self._order: list[tuple[Rank, int, HostChunk]] = []  # ranks that hold, and old ones
        self._numbers: dict[Sequence, int] = {}
        self._touched: dict[Sequence, dict[HostChunk, None]] = {}
        self._last = self._entries = 0

    def missed(self, seq: Sequence, keys: list[int]) -> None:
        return

    def inserted(self, seq: Sequence, chunk: HostChunk) -> None:
        self._touch(seq, chunk)

    def reused(self, seq: Sequence, chunk: HostChunk) -> None:
        self._touch(seq, chunk)

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _touch(self, seq: Sequence, chunk: HostChunk) -> None:
        touched = self._touched.setdefault(seq, {})
        if chunk in touched:
            return
        touched[chunk] = None
        if seq not in self._numbers:
            self._numbers[seq] = self._next()
        self._raise(chunk, (self._numbers[seq], -chunk.end))

    def _raise(self, chunk: HostChunk, rank: Rank) -> None:
        if rank > self._rank.get(chunk, (0, 0)):
            self._rank[chunk] = rank
            self._entries += 1
            heappush(self._order, (rank, self._entries, chunk))

    def finished(self, seq: Sequence) -> None:
        self._numbers.pop(seq, None)
        touched = self._touched.pop(seq, {})
        for chunk in sorted(touched, key=lambda chunk: -chunk.end):
            if chunk in self._rank:
                self._raise(chunk, (self._next(), 0))

    def choose(self, count: int, kept: Container[int]) -> list[HostChunk] | None:
        found: list[HostChunk] = []
        seen: list[tuple[Rank, int, HostChunk]] = []
        while self._order and len(found) < count:
            entry = heappop(self._order)
            rank, _, chunk = entry
            if self._rank.get(chunk) != rank:
                continue
            seen.append(entry)
            if chunk.evictable and chunk.key not in kept:
                found.append(chunk)
        for entry in seen:
            heappush(self._order, entry)
        return found if len(found) == count else None

    def evicted(self, chunk: HostChunk) -> None:
        del self._rank[chunk]
