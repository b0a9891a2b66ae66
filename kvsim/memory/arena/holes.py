"""An address space kept as a list of holes: what first, best and next fit share.

Holes are stored twice, by address and by size. Both lists are sorted, neighbours merge at once, and
a region is always cut from the front of its hole. The policies differ in `_choose` alone.
"""

from abc import abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import pairwise
from typing import Self

from pydantic import Field

from kvsim.memory.arena.placement import Arena, Placement, PlacementOptions, unknown_region
from kvsim.memory.contiguous.shape import BufferShape
from kvsim.memory.options import MemorySpec
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.plumbing.units import ceil_div


class HoleOptions(PlacementOptions):
    """unit_tokens: sizes are rounded up to whole units of this many tokens."""

    unit_tokens: int = Field(1, ge=1, le=1 << 20)

    def _unit_bytes(self, memory: MemorySpec) -> int:
        unit = BufferShape.of(memory.layout).unit_bytes(self.unit_tokens)
        if unit > memory.capacity_bytes:
            raise InputError(
                "the pool is smaller than one unit of the placement",
                where="placement.unit_tokens",
                value=f"{unit:,} bytes",
                limit=f"{memory.capacity_bytes:,} bytes",
                remedy="give the pool more memory or take smaller units",
            )
        return unit


class HoleArena(Arena):
    """Free memory as holes of whole units; region sizes and addresses are multiples of the unit."""

    def __init__(self, capacity_bytes: int, unit_bytes: int = 1) -> None:
        self.capacity_bytes = capacity_bytes
        self.metadata_bytes = capacity_bytes % unit_bytes
        self.free_bytes = capacity_bytes - self.metadata_bytes
        self.unit_bytes = unit_bytes
        self._live: dict[int, int] = {}
        self._size: dict[int, int] = {}  # hole by its address
        self._ending: dict[int, int] = {}  # address of the hole by its end
        self._starts: list[int] = []
        self._by_size: list[tuple[int, int]] = []
        if self.free_bytes:
            self._insert(0, self.free_bytes)

    @abstractmethod
    def _choose(self, size: int) -> int:
        """Address of the hole from which to allocate `size` bytes; at least one hole is large
        enough.
        """

    def _round(self, size: int) -> int:
        return ceil_div(size, self.unit_bytes) * self.unit_bytes

    def _place(self, size: int) -> Placement | None:
        size = self._round(size)
        if size > self.largest_hole:
            return None
        address = self._choose(size)
        self._cut(address, size)
        self._live[address] = size
        return Placement(address, size)

    def _displace(self, address: int) -> int:
        held = self._live.pop(address, None)
        if held is None:
            raise unknown_region(address)
        size = held
        following = self._size.get(address + size)
        if following is not None:
            self._remove(address + size, following)
            size += following
        before = self._ending.get(address)
        if before is not None:
            size += self._size[before]
            self._remove(before, self._size[before])
            address = before
        self._insert(address, size)
        return held

    def fits(self, size: int) -> bool:
        return self._round(size) <= self.largest_hole

    def places_for(self, size: int, most: int) -> int | None:
        """Number of regions of `size` bytes that fit in the holes, counted hole by hole until
        `most` is reached.
        """
        size = max(self._round(size), 1)
        found = 0
        for hole, _ in reversed(self._by_size):
            if hole < size or found >= most:
                break
            found += hole // size
        return found

    def can_ever_fit(self, size: int) -> bool:
        return self._round(size) <= self.capacity_bytes - self.metadata_bytes

    def _extend(self, address: int, new_size: int) -> bool:
        held, size = self._live[address], self._round(new_size)
        if self._size.get(address + held, 0) < size - held:
            return False
        self._cut(address + held, size - held)
        self._live[address] = size
        return True

    @property
    def largest_hole(self) -> int:
        return self._by_size[-1][0] if self._by_size else 0

    def holes(self) -> Iterator[tuple[int, int]]:
        return ((start, self._size[start]) for start in self._starts)

    def live(self) -> Iterator[tuple[int, int]]:
        return iter(sorted(self._live.items()))

    def granted(self, address: int) -> int:
        try:
            return self._live[address]
        except KeyError:
            raise unknown_region(address) from None

    def clone(self) -> Self:
        twin = self._twin()
        twin._live, twin._size, twin._ending = (
            self._live.copy(),
            self._size.copy(),
            self._ending.copy(),
        )
        twin._starts, twin._by_size = self._starts.copy(), self._by_size.copy()
        return twin

    def check(self) -> None:
        super().check()
        holes = list(self.holes())
        if any(a + size == b for (a, size), (b, _) in pairwise(holes)):
            raise InvariantError("two neighbouring holes are not merged")
        if sorted((size, start) for start, size in holes) != self._by_size:
            raise InvariantError("the holes by size are not the holes by address")
        if {start + size: start for start, size in holes} != self._ending:
            raise InvariantError("the holes by end are not the holes by address")

    def _cut(self, start: int, size: int) -> None:
        """Take `size` bytes from the front of the hole at `start`."""
        whole = self._size[start]
        self._remove(start, whole)
        if whole > size:
            self._insert(start + size, whole - size)

    def _insert(self, start: int, size: int) -> None:
        self._size[start] = size
        self._ending[start + size] = start
        insort(self._starts, start)
        insort(self._by_size, (size, start))

    def _remove(self, start: int, size: int) -> None:
        del self._size[start]
        del self._ending[start + size]
        del self._starts[bisect_left(self._starts, start)]
        del self._by_size[bisect_left(self._by_size, (size, start))]
