"""Best fit: the smallest hole that is large enough; the lowest of equal ones."""

from bisect import bisect_left

from kvsim.memory.arena.holes import HoleArena, HoleOptions
from kvsim.memory.options import MemorySpec


class BestFit(HoleOptions):
    """The smallest hole that is large enough."""

    def build(self, memory: MemorySpec) -> "BestFitArena":
        return BestFitArena(memory.capacity_bytes, self._unit_bytes(memory))


class BestFitArena(HoleArena):
    """A hole arena that takes the tightest hole."""

    def _choose(self, size: int) -> int:
        return self._by_size[bisect_left(self._by_size, (size, -1))][1]
