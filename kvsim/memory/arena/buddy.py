"""Buddies: regions of a power of two units, split in halves and merged with their other half.

As in the Orca baselines of the PagedAttention paper (Kwon et al., SOSP 2023, artifact), a unit is
one block of 16 tokens. The largest buddy holds the model's maximum. The rest of the pool, beyond
whole largest buddies, is tiled with decreasing powers of two.
"""

from collections.abc import Iterator
from typing import Self

from pydantic import Field

from kvsim.memory.arena.placement import Arena, Placement, PlacementOptions, unknown_region
from kvsim.memory.contiguous.shape import BufferShape
from kvsim.memory.options import MemorySpec
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.plumbing.units import ceil_div


class Buddy(PlacementOptions):
    """unit_tokens: tokens of the smallest buddy.

    largest_tokens: tokens that the largest buddy must hold, rounded up to a power of two of units;
    the model's maximum where not given.
    """

    unit_tokens: int = Field(16, ge=1, le=1 << 20)
    largest_tokens: int | None = Field(None, ge=1)

    def build(self, memory: MemorySpec) -> "BuddyArena":
        shape = BufferShape.of(memory.layout)
        unit = shape.unit_bytes(self.unit_tokens)
        if unit > memory.capacity_bytes:
            raise InputError(
                "the pool is smaller than the smallest buddy",
                where="placement.unit_tokens",
                value=f"{unit:,} bytes",
                limit=f"{memory.capacity_bytes:,} bytes",
                remedy="give the pool more memory or take smaller units",
            )
        largest = shape.bytes(self.largest_tokens or memory.max_model_len)
        return BuddyArena(memory.capacity_bytes, unit, max(ceil_div(largest, unit), 1))


class BuddyArena(Arena):
    """Buddy allocator: a free list for each order (regions of 2**order units), used last in, first
    out.

    A buddy of order k starts at a multiple of 2**k units, so its other half differs in bit k of its
    address alone.
    """

    def __init__(self, capacity_bytes: int, unit_bytes: int, largest_units: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.unit_bytes = unit_bytes
        self.metadata_bytes = capacity_bytes % unit_bytes
        self.free_bytes = capacity_bytes - self.metadata_bytes
        self.largest_order = _order(largest_units)
        self._free: list[dict[int, None]] = [{} for _ in range(self.largest_order + 1)]
        self._live: dict[int, int] = {}  # order by first unit
        tiles = list(self._tiles(capacity_bytes // unit_bytes))
        for start, order in reversed(tiles):  # the lowest comes off first
            self._free[order][start] = None
        self._largest_tile = max((order for _, order in tiles), default=-1)

    def _tiles(self, units: int) -> Iterator[tuple[int, int]]:
        """The initial regions of the empty pool, as (first unit, order), the largest first."""
        start = 0
        while start < units:
            order = min(self.largest_order, (units - start).bit_length() - 1)
            yield start, order
            start += 1 << order

    def _order_of(self, size: int) -> int:
        return _order(ceil_div(size, self.unit_bytes))

    def _place(self, size: int) -> Placement | None:
        wanted = self._order_of(size)
        order = next((k for k in range(wanted, self.largest_order + 1) if self._free[k]), None)
        if order is None:
            return None
        start, _ = self._free[order].popitem()
        while order > wanted:
            order -= 1
            self._free[order][start + (1 << order)] = None
        self._live[start] = order
        return Placement(start * self.unit_bytes, self.unit_bytes << order)

    def _displace(self, address: int) -> int:
        granted = self.granted(address)
        start = address // self.unit_bytes
        order = self._live.pop(start)
        while order < self.largest_order and start ^ (1 << order) in self._free[order]:
            del self._free[order][start ^ (1 << order)]
            start &= ~(1 << order)
            order += 1
        self._free[order][start] = None
        return granted

    def fits(self, size: int) -> bool:
        return any(self._free[self._order_of(size) :])

    def can_ever_fit(self, size: int) -> bool:
        return self._order_of(size) <= self._largest_tile

    def _extend(self, address: int, new_size: int) -> bool:
        start, wanted = address // self.unit_bytes, self._order_of(new_size)
        above = [(k, start + (1 << k)) for k in range(self._live[start], wanted)]
        if (
            wanted > self.largest_order
            or start % (1 << wanted)
            or any(half not in self._free[k] for k, half in above)
        ):
            return False
        for k, half in above:
            del self._free[k][half]
        self._live[start] = wanted
        return True

    @property
    def largest_hole(self) -> int:
        order = max((k for k, free in enumerate(self._free) if free), default=None)
        return 0 if order is None else self.unit_bytes << order

    def holes(self) -> Iterator[tuple[int, int]]:
        free = ((start, order) for order, starts in enumerate(self._free) for start in starts)
        return ((s * self.unit_bytes, self.unit_bytes << order) for s, order in sorted(free))

    def live(self) -> Iterator[tuple[int, int]]:
        live = sorted(self._live.items())
        return ((s * self.unit_bytes, self.unit_bytes << order) for s, order in live)

    def granted(self, address: int) -> int:
        order = self._live.get(address // self.unit_bytes)
        if order is None or address % self.unit_bytes:
            raise unknown_region(address)
        return self.unit_bytes << order

    def clone(self) -> Self:
        twin = self._twin()
        twin._free, twin._live = [free.copy() for free in self._free], self._live.copy()
        return twin

    def check(self) -> None:
        super().check()
        for order, starts in enumerate(self._free):
            for start in starts:
                if start % (1 << order):
                    raise InvariantError(f"a buddy of order {order} is at unit {start}")
                if order < self.largest_order and start ^ (1 << order) in starts:
                    raise InvariantError(f"two free halves of order {order} are not merged")


def _order(units: int) -> int:
    """The least k with 2**k >= units."""
    return (units - 1).bit_length()
