"""First fit: the hole of the lowest address that is large enough."""

from bisect import bisect_left

from kvsim.memory.arena.holes import HoleArena, HoleOptions
from kvsim.memory.options import MemorySpec


class FirstFit(HoleOptions):
    """The lowest hole that is large enough."""

    def build(self, memory: MemorySpec) -> "FirstFitArena":
        return FirstFitArena(memory.capacity_bytes, self._unit_bytes(memory))


class FirstFitArena(HoleArena):
    """A hole arena that takes the lowest hole."""

    def _choose(self, size: int) -> int:
        sizes = self._size
        enough = bisect_left(self._by_size, (size, -1))
        fitting = len(self._by_size) - enough
        # Many fit: one of them is met soon from below. Few fit: the lowest of them is found sooner.
        if fitting * fitting < len(self._by_size):
            return min(start for _, start in self._by_size[enough:])
        return next(start for start in self._starts if sizes[start] >= size)
