"""torch's caching allocator (c10/cuda/CUDACachingAllocator.cpp) on one stream, default settings.

Requests are rounded up to 512 bytes. Up to 1 MiB they come from 2 MiB segments, below 10 MiB from
20 MiB segments. A larger request gets a segment of its own, in multiples of 2 MiB. The free block
of least (size, address) is taken, and split where the rest is worth keeping: 512 bytes in the small
pool, more than 1 MiB in the large one. Free neighbours within a segment merge. Where the device has
no room for another segment, all wholly free segments go back to it, and it is asked again.

Addresses are virtual. Memory the device has not been asked for has none; it counts as one hole
after the last segment.
"""

from collections.abc import Iterator
from typing import Self

from kvsim.memory.arena.placement import Arena, Placement, unknown_region
from kvsim.memory.arena.torch_blocks import (
    MIN_BLOCK,
    MIN_LARGE_REQUEST,
    ROUND_LARGE,
    SMALL_SEGMENT,
    SMALL_SIZE,
    Block,
    Segment,
    State,
    round_size,
    segment_size,
)
from kvsim.memory.arena.torch_heap import Heap


class TorchCachingArena(Arena):
    """Segments of blocks on a device of capacity_bytes.

    reserved_bytes: what the device has handed out.
    """

    expandable = False

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.metadata_bytes = capacity_bytes % SMALL_SEGMENT
        self.free_bytes = capacity_bytes - self.metadata_bytes
        self.reserved_bytes = 0
        self._limit = self.free_bytes
        self._heap = Heap()

    def segments(self) -> list[Segment]:
        """The segments in order of address."""
        return sorted(self._heap.segments.values())

    def blocks(self) -> list[Block]:
        """The blocks in order of address."""
        return sorted(self._heap.blocks.values())

    # --- the arena's promise -------------------------------------------------------------------

    def _place(self, size: int) -> Placement | None:
        if not self.fits(size):
            return None
        block = self._take(round_size(size))
        assert block is not None, "fits() promised a place"
        return Placement(block.address, block.size)

    def _displace(self, address: int) -> int:
        block = self._allocated(address)
        self._heap.give_back(block)
        return block.size

    def fits(self, size: int) -> bool:
        rounded = round_size(size)
        by_size = self._heap.pools[rounded <= SMALL_SIZE].by_size
        return bool(by_size and by_size[-1][0] >= rounded) or self._obtainable(rounded)

    def places_for(self, size: int, most: int) -> int | None:
        """A free block gives as many as it holds whole: what is too little to be split off is less
        than one of them. Then come new segments, for which idle ones too small go back.
        """
        rounded = round_size(size)
        small = rounded <= SMALL_SIZE
        found = 0
        for free, _ in reversed(self._heap.pools[small].by_size):
            if free < rounded or found >= most:
                break
            found += free // rounded
        segment = segment_size(rounded)
        if found < most:
            found += (self._limit - self.reserved_bytes) // segment * (segment // rounded)
        if found < most:
            rest = (self._limit - self.reserved_bytes) % segment
            idle = self._idle_bytes(not small) + self._idle_bytes(small, below=rounded)
            found += (rest + idle) // segment * (segment // rounded)
        return found

    def can_ever_fit(self, size: int) -> bool:
        return type(self)(self.capacity_bytes).fits(size)

    @property
    def largest_hole(self) -> int:
        large, small = (self._heap.pools[kind].by_size[-1:] for kind in (False, True))
        # A rest of up to 1 MiB in a large pool is unused: such requests go to the small pool.
        cached = [size for size, _ in large if size > SMALL_SIZE]
        cached += [min(size, SMALL_SIZE) for size, _ in small]
        return max([*cached, self._largest_new()])

    def holes(self) -> Iterator[tuple[int, int]]:
        blocks = self.blocks()
        for block in blocks:
            if block.state is State.FREE:
                yield block.address, block.size
        if self._limit > self.reserved_bytes:
            yield blocks[-1].end if blocks else 0, self._limit - self.reserved_bytes

    def live(self) -> Iterator[tuple[int, int]]:
        return ((b.address, b.size) for b in self.blocks() if b.state is State.ALLOCATED)

    def granted(self, address: int) -> int:
        return self._allocated(address).size

    def clone(self) -> Self:
        twin = self._twin()
        twin._heap = self._heap.copy()
        return twin

    def check(self) -> None:
        super().check()
        self._heap.check(self.reserved_bytes)

    # --- torch's way ---------------------------------------------------------------------------

    def _take(self, rounded: int) -> Block | None:
        """Allocate a block of `rounded` bytes, or a little more where the rest is not worth a
        block of its own.
        """
        small = rounded <= SMALL_SIZE
        block = self._cached(rounded, small=small) or self._fresh(rounded, small=small)
        if block is None:
            self._release_idle(small=False)
            self._release_idle(small=True)
            block = self._fresh(rounded, small=small)
            if block is None:
                return None
        splits = self._worth_splitting(block.size - rounded, small=small)
        return self._heap.carve(block, rounded if splits else block.size)

    def _worth_splitting(self, rest: int, *, small: bool) -> bool:
        return rest >= MIN_BLOCK if small else rest > SMALL_SIZE

    def _cached(self, rounded: int, *, small: bool) -> Block | None:
        """The free block to take, still free."""
        pool = self._heap.pools[small]
        index = pool.index_of(rounded)
        return self._heap.blocks[pool.by_size[index][1]] if index < len(pool.by_size) else None

    def _fresh(self, rounded: int, *, small: bool) -> Block | None:
        """A free block on memory newly asked from the device; None if it has no room."""
        size = segment_size(rounded)
        if self.reserved_bytes + size > self._limit:
            return None
        block = self._heap.open(size, small=small, state=State.FREE)
        self.reserved_bytes += size
        self._tell("segment_alloc", block.address, size)
        return block

    def _release_idle(self, *, small: bool) -> None:
        """Free the segments without an allocation to the device."""
        for size, address in self._heap.pools[small].by_size.copy():
            block = self._heap.blocks[address]
            if self._heap.is_whole(block):
                self._heap.close(block)
                self.reserved_bytes -= size
                self._tell("segment_free", address, size)

    def _obtainable(self, rounded: int) -> bool:
        """Whether the device has room for a segment of this size once all idle ones are freed."""
        return segment_size(rounded) <= self._room()

    def _room(self) -> int:
        idle = self._idle_bytes(True) + self._idle_bytes(False)
        return self._limit - self.reserved_bytes + idle

    def _idle_bytes(self, small: bool, below: int | None = None) -> int:
        """Bytes of one pool's segments without an allocation that are smaller than `below`."""
        blocks, by_size = self._heap.blocks, self._heap.pools[small].by_size
        end = len(by_size) if below is None else self._heap.pools[small].index_of(below)
        return sum(size for size, address in by_size[:end] if self._heap.is_whole(blocks[address]))

    def _largest_new(self) -> int:
        """The largest request for which the device could give memory."""
        room = self._room() // ROUND_LARGE * ROUND_LARGE
        if room >= MIN_LARGE_REQUEST:
            return room
        return SMALL_SIZE if room >= SMALL_SEGMENT else 0

    def _allocated(self, address: int) -> Block:
        block = self._heap.blocks.get(address)
        if block is None or block.state is not State.ALLOCATED:
            raise unknown_region(address)
        return block

    def _tell(self, action: str, address: int, size: int) -> None:
        if self.listener is not None:
            self.listener.device(action, address, size)
