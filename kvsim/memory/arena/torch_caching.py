"""torch's caching allocator (c10/cuda/CUDACachingAllocator.cpp) on one stream, default settings.

Requests are rounded up to 512 bytes. Up to 1 MiB they come from 2 MiB segments, below 10 MiB from
20 MiB segments. A larger request gets a segment of its own, in multiples of 2 MiB. The free block
of least (size, address) is taken. It is split if the rest has 512 bytes in the small pool, more
than 1 MiB in the large one. Free neighbours within a segment merge. If the device has no room for
another segment, all wholly free segments are released, and the request is tried again.

Addresses are virtual. Memory not yet requested from the device has no address; it counts as one
hole after the last segment.
"""

from kvsim.memory.arena.torch_arena import TorchArena
from kvsim.memory.arena.torch_blocks import (
    MIN_BLOCK,
    MIN_LARGE_REQUEST,
    ROUND_LARGE,
    SMALL_SEGMENT,
    SMALL_SIZE,
    Block,
    State,
    round_size,
    segment_size,
)


class TorchCachingArena(TorchArena):
    """Each segment is one allocation of the device."""

    expandable = False

    def places_for(self, size: int, most: int) -> int | None:
        """Number of regions of `size` bytes that fit: in free blocks, then in new segments.

        Each free block gives as many regions as it holds whole, since a rest too small to split off
        is smaller than a region. For new segments, idle segments that are too small are released
        first.
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

    def _worth_splitting(self, rest: int, *, small: bool) -> bool:
        return rest >= MIN_BLOCK if small else rest > SMALL_SIZE

    def _fresh(self, rounded: int, *, small: bool) -> Block | None:
        """A free block in a new segment from the device; None if the device is out of memory."""
        size = segment_size(rounded)
        if self.reserved_bytes + size > self._limit:
            return None
        block = self._heap.open(size, small=small, state=State.FREE)
        self.reserved_bytes += size
        self._tell("segment_alloc", block.address, size)
        return block

    def _release_idle(self, *, small: bool) -> None:
        """Return the segments without allocations to the device (cudaFree). small: of the pool for
        small requests.
        """
        for size, address in self._heap.pools[small].by_size.copy():
            block = self._heap.blocks[address]
            if self._heap.is_whole(block):
                self._heap.close(block)
                self.reserved_bytes -= size
                self._tell("segment_free", address, size)

    def _obtainable(self, rounded: int) -> bool:
        """Whether the device has room for a segment for `rounded` bytes once all idle segments are
        freed.
        """
        return segment_size(rounded) <= self._room()

    def _room(self) -> int:
        idle = self._idle_bytes(True) + self._idle_bytes(False)
        return self._limit - self.reserved_bytes + idle

    def _idle_bytes(self, small: bool, below: int | None = None) -> int:
        """Total bytes of one pool's idle segments (no allocation) that are smaller than `below`
        bytes.
        """
        blocks, by_size = self._heap.blocks, self._heap.pools[small].by_size
        end = len(by_size) if below is None else self._heap.pools[small].index_of(below)
        return sum(size for size, address in by_size[:end] if self._heap.is_whole(blocks[address]))

    def _largest_new(self) -> int:
        """The largest request in bytes for which the device could give a new segment."""
        room = self._room() // ROUND_LARGE * ROUND_LARGE
        if room >= MIN_LARGE_REQUEST:
            return room
        return SMALL_SIZE if room >= SMALL_SEGMENT else 0
