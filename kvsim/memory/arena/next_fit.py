"""Next fit: the search continues where the last one ended, and wraps around at the end of the
space.
"""

from bisect import bisect_left, bisect_right
from itertools import chain

from kvsim.memory.arena.holes import HoleArena, HoleOptions
from kvsim.memory.arena.placement import Placement
from kvsim.memory.options import MemorySpec


class NextFit(HoleOptions):
    """The first hole that is large enough, searching from the end of the region placed last."""

    def build(self, memory: MemorySpec) -> "NextFitArena":
        return NextFitArena(memory.capacity_bytes, self._unit_bytes(memory))


class NextFitArena(HoleArena):
    """A hole arena searched from a rover: the address where the region placed last ends.

    The search starts with the hole that contains the rover, since freed neighbours may have merged
    into that hole.
    """

    _rover: int = 0

    def _place(self, size: int) -> Placement | None:
        placed = super()._place(size)
        if placed:
            self._rover = placed.address + placed.granted
        return placed

    def _choose(self, size: int) -> int:
        starts, sizes = self._starts, self._size
        first = bisect_right(starts, self._rover)
        if first and starts[first - 1] + sizes[starts[first - 1]] > self._rover:
            first -= 1
        enough = bisect_left(self._by_size, (size, -1))
        fitting = len(self._by_size) - enough
        # As in first fit: of few that fit, the nearest is found by comparing them.
        if fitting * fitting < len(starts):
            origin = starts[first] if first < len(starts) else 0
            return min(
                (start for _, start in self._by_size[enough:]),
                key=lambda start: (start < origin, start),
            )
        order = chain(range(first, len(starts)), range(first))
        return next(starts[i] for i in order if sizes[starts[i]] >= size)
