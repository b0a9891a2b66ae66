"""Least recently used by request: of one request's chunks, those at the tail are evicted first.

vLLM 0.33, v1/kv_offload/cpu/policies/lru.py. All chunks that a request touches share one rank until
it is finished. Then each of them gets a separate rank, the head the newest.
"""

from collections.abc import Container
from heapq import heappop, heappush

from kvsim.engine.connectors.offloading.chunk import ChunkContent, HostChunk
from kvsim.engine.connectors.offloading.policy import ChunkPolicy
from kvsim.sequence import Sequence

Rank = tuple[int, int]


class LeastRecentlyUsed(ChunkPolicy):
    """Evicts the chunk with the lowest rank (number, minus the tokens to the chunk's end)."""

    def __init__(self, capacity: int) -> None:
        self._rank: dict[int, Rank] = {}
        self._chunks: dict[int, HostChunk] = {}
        self._order: list[tuple[Rank, int, HostChunk]] = []  # ranks that hold, and old ones
        self._numbers: dict[Sequence, int] = {}
        self._last = self._entries = 0

    def missed(self, keys: list[int]) -> None:
        return

    def accessed(self, seq: Sequence, contents: list[ChunkContent]) -> None:
        number = self._number(seq)
        for content in contents:
            rank = number, -content.end
            if content.key in self._chunks and rank > self._rank[content.key]:
                self._place(content.key, rank)

    def inserted(self, seq: Sequence, chunk: HostChunk) -> None:
        self._chunks[chunk.key] = chunk
        self._place(chunk.key, (self._number(seq), -chunk.content.end))

    def _number(self, seq: Sequence) -> int:
        number = self._numbers.get(seq)
        if number is None:
            number = self._numbers[seq] = self._next()
        return number

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _place(self, key: int, rank: Rank) -> None:
        self._rank[key] = rank
        self._entries += 1
        heappush(self._order, (rank, self._entries, self._chunks[key]))

    def finished(
        self, seq: Sequence, keys: list[int], stored: Container[int], reused: Container[int]
    ) -> None:
        self._numbers.pop(seq, None)
        for key in keys:
            if key in self._chunks:
                self._place(key, (self._next(), 0))

    def choose(self, count: int, kept: Container[int]) -> list[HostChunk] | None:
        found: list[HostChunk] = []
        seen: list[tuple[Rank, int, HostChunk]] = []
        while self._order and len(found) < count:
            entry = heappop(self._order)
            rank, _, chunk = entry
            if self._chunks.get(chunk.key) is not chunk or self._rank[chunk.key] != rank:
                continue
            seen.append(entry)
            if chunk.evictable and chunk.key not in kept:
                found.append(chunk)
        for entry in seen:
            heappush(self._order, entry)
        return found if len(found) == count else None

    def evicted(self, chunk: HostChunk) -> None:
        del self._rank[chunk.key], self._chunks[chunk.key]
