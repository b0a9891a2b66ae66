"""The `lru` eviction policy: least recently used requests first, and the tail of a request before
its head (vLLM 0.33, v1/kv_offload/cpu/policies/lru.py).

All chunks that a running request touches share the request's rank. When it finishes, all of its
chunks get a new, highest rank; the chunk at the head of the prompt is evicted last.
"""

from bisect import insort_left
from collections import OrderedDict
from collections.abc import Container

from kvsim.engine.connectors.offloading.chunk import ChunkContent, HostChunk
from kvsim.engine.connectors.offloading.policy import ChunkPolicy
from kvsim.sequence import Sequence


class RankedChunks:
    """The chunks of one rank, in reverse order of eviction: the last one is evicted first.

    Chunks that were evicted or got another rank are removed from the list only when eviction
    reaches them. finished: the request has finished, so that no chunk will be added.
    """

    __slots__ = ("chunks", "finished", "rank")

    def __init__(self, rank: int) -> None:
        self.rank, self.finished = rank, False
        self.chunks: list[HostChunk] = []

    def add(self, chunk: HostChunk) -> None:
        """Add a chunk of a running request; chunks are sorted by their end in the prompt."""
        chunk.rank = self.rank
        chunks = self.chunks
        if not chunks or chunks[-1].content.end < chunk.content.end:
            chunks.append(chunk)
        else:  # of another layer group, whose chunk at the same end is evicted first
            insort_left(chunks, chunk, key=_end_of)


def _end_of(chunk: HostChunk) -> int:
    return chunk.content.end


EVICTED = -1


class LeastRecentlyUsed(ChunkPolicy):
    """Evicts chunks of the lowest rank first, and within a rank those nearest to the tail.

    The time to find the next chunk does not grow with the number of chunks.
    """

    def __init__(self, capacity: int) -> None:
        self._running: dict[Sequence, RankedChunks] = {}
        self._ranks: OrderedDict[int, RankedChunks] = OrderedDict()  # the lowest first
        self._last = 0

    def missed(self, seq: Sequence, contents: list[ChunkContent]) -> None:
        return

    def accessed(self, seq: Sequence, chunks: list[HostChunk]) -> None:
        own = self._of(seq)
        for chunk in chunks:
            if own.rank > chunk.rank:
                own.add(chunk)

    def inserted(self, seq: Sequence, chunk: HostChunk) -> None:
        self._of(seq).add(chunk)

    def _of(self, seq: Sequence) -> RankedChunks:
        found = self._running.get(seq)
        if found is None:
            found = self._running[seq] = self._highest()
        return found

    def _highest(self) -> RankedChunks:
        self._last += 1
        made = self._ranks[self._last] = RankedChunks(self._last)
        return made

    def finished(
        self, seq: Sequence, chunks: list[HostChunk], stored: Container[int], reused: Container[int]
    ) -> None:
        own = self._running.pop(seq, None)
        if own is not None:
            del self._ranks[own.rank]  # all that it holds is in `chunks`
        if not chunks:
            return
        left = self._highest()
        left.chunks, left.finished = chunks[::-1], True
        for chunk in chunks:
            chunk.rank = left.rank

    def choose(self, count: int, kept: Container[int]) -> list[HostChunk] | None:
        found: list[HostChunk] = []
        empty: list[int] = []
        for rank, of in self._ranks.items():
            chunks = of.chunks
            while chunks and chunks[-1].rank != rank:
                chunks.pop()
            if not chunks and of.finished:
                empty.append(rank)
            at = len(chunks)
            while at and len(found) < count:
                at -= 1
                chunk = chunks[at]
                if chunk.rank == rank and chunk.evictable and chunk.key not in kept:
                    found.append(chunk)
            if len(found) == count:
                break
        for rank in empty:
            del self._ranks[rank]
        return found if len(found) == count else None

    def evicted(self, chunk: HostChunk) -> None:
        chunk.rank = EVICTED
