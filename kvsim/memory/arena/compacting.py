"""A placement without addresses: the pool may move its regions at no cost.

A region fits if it is no larger than the free memory. External fragmentation is measured against
this placement.
"""

from collections.abc import Iterator
from typing import Self

from kvsim.memory.arena.placement import Arena, Placement, PlacementOptions, unknown_region
from kvsim.memory.options import MemorySpec, StoreKind


class Compacting(PlacementOptions):
    """Placement that never suffers external fragmentation. rounded_as: round sizes as this
    placement does; None: no rounding.
    """

    rounded_as: PlacementOptions | None = None

    @property
    def store(self) -> StoreKind | None:
        """None: no torch store serves this placement, as real buffers cannot be moved at no
        cost.
        """
        return None

    def build(self, memory: MemorySpec) -> "CompactingArena":
        model = None if self.rounded_as is None else self.rounded_as.build(memory)
        return CompactingArena(memory.capacity_bytes, model)


class CompactingArena(Arena):
    """Regions numbered in order of allocation and packed in that order from address 0 on.

    model: an empty arena that says to how many bytes a size is rounded up. The metadata bytes of
    `model` count as metadata here, too.
    """

    def __init__(self, capacity_bytes: int, model: Arena | None) -> None:
        self.capacity_bytes = capacity_bytes
        self.metadata_bytes = 0 if model is None else model.metadata_bytes
        self.free_bytes = capacity_bytes - self.metadata_bytes
        self._model = model
        self._grants: dict[int, int] = {}
        self._live: dict[int, int] = {}
        self._numbers = 0

    def _granted_for(self, size: int) -> int | None:
        """Bytes that a region for `size` bytes takes; None if even the empty model has no room."""
        if self._model is None:
            return size if size <= self.capacity_bytes else None
        if size not in self._grants:
            placed = self._model.allocate(size)
            if placed is None:
                return None
            self._grants[size] = placed.granted
            self._model.free(placed.address)
        return self._grants[size]

    def _place(self, size: int) -> Placement | None:
        granted = self._granted_for(size)
        if granted is None or granted > self.free_bytes:
            return None
        self._numbers += 1
        self._live[self._numbers] = granted
        return Placement(self._numbers, granted)

    def _displace(self, address: int) -> int:
        if address not in self._live:
            raise unknown_region(address)
        return self._live.pop(address)

    def _extend(self, address: int, new_size: int) -> bool:
        granted = self._granted_for(new_size)
        if granted is None or granted - self._live[address] > self.free_bytes:
            return False
        self._live[address] = granted
        return True

    def fits(self, size: int) -> bool:
        granted = self._granted_for(size)
        return granted is not None and granted <= self.free_bytes

    def can_ever_fit(self, size: int) -> bool:
        granted = self._granted_for(size)
        return granted is not None and granted <= self.capacity_bytes - self.metadata_bytes

    @property
    def largest_hole(self) -> int:
        return self.free_bytes

    def holes(self) -> Iterator[tuple[int, int]]:
        if self.free_bytes:
            yield sum(self._live.values()), self.free_bytes

    def live(self) -> Iterator[tuple[int, int]]:
        start = 0
        for size in self._live.values():
            yield start, size
            start += size

    def granted(self, address: int) -> int:
        if address not in self._live:
            raise unknown_region(address)
        return self._live[address]

    def clone(self) -> Self:
        twin = self._twin()
        twin._live = self._live.copy()
        return twin
