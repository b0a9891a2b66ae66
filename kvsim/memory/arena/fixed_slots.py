"""Fixed slots: the pool is divided once into equal slots, each one sequence's buffer
(FasterTransformer's cache).
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Self

from pydantic import Field

from kvsim.memory.arena.placement import Arena, Placement, PlacementOptions, unknown_region
from kvsim.memory.contiguous.shape import BufferShape
from kvsim.memory.options import MemorySpec
from kvsim.plumbing.errors import InputError


class FixedSlots(PlacementOptions):
    """slot_tokens: the length of every slot; the model's maximum where not given."""

    slot_tokens: int | None = Field(None, ge=1)

    def build(self, memory: MemorySpec) -> "FixedSlotsArena":
        tokens = self.slot_tokens or memory.max_model_len
        slot = max(BufferShape.of(memory.layout).bytes(tokens), 1)
        if slot > memory.capacity_bytes:
            raise InputError(
                "the pool is smaller than one slot",
                where="placement.slot_tokens",
                value=f"{tokens:,} tokens ({slot:,} bytes)",
                limit=f"{memory.capacity_bytes:,} bytes",
                remedy="give the pool more memory or take shorter slots",
            )
        return FixedSlotsArena(memory.capacity_bytes, slot)


class FixedSlotsArena(Arena):
    """Slots of slot_bytes from address 0 on; the lowest free one is taken."""

    def __init__(self, capacity_bytes: int, slot_bytes: int) -> None:
        num_slots = capacity_bytes // slot_bytes
        self.capacity_bytes = capacity_bytes
        self.slot_bytes = slot_bytes
        self.free_bytes = num_slots * slot_bytes
        self.metadata_bytes = capacity_bytes - self.free_bytes
        self._free = list(range(0, self.free_bytes, slot_bytes))
        heapify(self._free)
        self._live: set[int] = set()

    def _place(self, size: int) -> Placement | None:
        if not self.fits(size):
            return None
        address = heappop(self._free)
        self._live.add(address)
        return Placement(address, self.slot_bytes)

    def _displace(self, address: int) -> int:
        if address not in self._live:
            raise unknown_region(address)
        self._live.remove(address)
        heappush(self._free, address)
        return self.slot_bytes

    def fits(self, size: int) -> bool:
        return size <= self.largest_hole

    def can_ever_fit(self, size: int) -> bool:
        return size <= self.slot_bytes <= self.capacity_bytes

    @property
    def largest_hole(self) -> int:
        return self.slot_bytes if self._free else 0

    def holes(self) -> Iterator[tuple[int, int]]:
        return ((address, self.slot_bytes) for address in sorted(self._free))

    def live(self) -> Iterator[tuple[int, int]]:
        return ((address, self.slot_bytes) for address in sorted(self._live))

    def granted(self, address: int) -> int:
        if address not in self._live:
            raise unknown_region(address)
        return self.slot_bytes

    def clone(self) -> Self:
        twin = self._twin()
        twin._free, twin._live = self._free.copy(), self._live.copy()
        return twin
