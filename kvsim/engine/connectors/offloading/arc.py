"""Adaptive replacement cache (ARC): balances chunks used once against chunks used again by which
recent misses would have been hits (vLLM 0.33, v1/kv_offload/cpu/policies/arc.py).
"""

from collections import OrderedDict
from collections.abc import Container

from kvsim.engine.connectors.offloading.chunk import ChunkContent, HostChunk
from kvsim.engine.connectors.offloading.policy import ChunkPolicy
from kvsim.sequence import Sequence


class AdaptiveReplacement(ChunkPolicy):
    """Keeps two lists of chunks in host memory, used once and used again, each oldest first.

    Ghosts: keys of chunks evicted from each list. target: number of chunks that the list of those
    used once should have.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._once: OrderedDict[int, HostChunk] = OrderedDict()
        self._again: OrderedDict[int, HostChunk] = OrderedDict()
        self._once_ghosts: OrderedDict[int, None] = OrderedDict()
        self._again_ghosts: OrderedDict[int, None] = OrderedDict()
        self._target = 0.0
        self._missed: dict[Sequence, set[int]] = {}  # a miss counts once for each sequence

    def missed(self, seq: Sequence, contents: list[ChunkContent]) -> None:
        once, again = self._once_ghosts, self._again_ghosts
        known = self._missed.setdefault(seq, set())
        for content in reversed(contents):
            key = content.key
            if key in known:
                continue
            known.add(key)
            if key in once:
                more = max(1, len(again) / len(once))
                self._target = min(self._target + more, self._capacity)
                once.move_to_end(key)
            elif key in again:
                less = max(1, len(once) / len(again))
                self._target = max(self._target - less, 0)
                again.move_to_end(key)

    def accessed(self, seq: Sequence, chunks: list[HostChunk]) -> None:
        return

    def inserted(self, seq: Sequence, chunk: HostChunk) -> None:
        self._once[chunk.key] = chunk
        self._once_ghosts.pop(chunk.key, None)
        self._again_ghosts.pop(chunk.key, None)

    def finished(
        self, seq: Sequence, chunks: list[HostChunk], stored: Container[int], reused: Container[int]
    ) -> None:
        self._missed.pop(seq, None)
        for chunk in chunks:
            key = chunk.key
            if key in stored and key in self._once:
                self._once.move_to_end(key)
            elif key in reused and key in self._once:
                self._again[key] = self._once.pop(key)
            elif key in self._again and (key in stored or key in reused):
                self._again.move_to_end(key)

    def choose(self, count: int, kept: Container[int]) -> list[HostChunk] | None:
        once = (c for c in self._once.values() if c.evictable and c.key not in kept)
        again = (c for c in self._again.values() if c.evictable and c.key not in kept)
        found: list[HostChunk] = []
        left = len(self._once)
        for _ in range(count):
            chunk = next(once, None) if left >= int(self._target) else None
            if chunk is None:
                chunk = next(again, None) or next(once, None)
            if chunk is None:
                return None
            left -= chunk.key in self._once
            found.append(chunk)
        return found

    def evicted(self, chunk: HostChunk) -> None:
        key, ghosts = chunk.key, self._once_ghosts
        if self._once.pop(key, None) is None:
            del self._again[key]
            ghosts = self._again_ghosts
        ghosts[key] = None
        if len(ghosts) > self._capacity:
            ghosts.popitem(last=False)
