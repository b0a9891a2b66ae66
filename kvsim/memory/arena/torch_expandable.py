"""torch's caching allocator with expandable segments.

Each pool is one address range. Memory is mapped into it 2 MiB at a time in the small pool, 20 MiB
in the large one. A block is split if at least 512 bytes remain. Pages without an allocation are
returned to the device when it runs out of memory.
"""

from kvsim.memory.arena.torch_arena import TorchArena
from kvsim.memory.arena.torch_blocks import (
    LARGE_SEGMENT,
    MIN_BLOCK,
    SMALL_SEGMENT,
    SMALL_SIZE,
    Block,
    State,
)
from kvsim.plumbing.units import ceil_div


class ExpandableArena(TorchArena):
    """torch's allocator with one expandable segment, an address range, for each pool."""

    expandable = True

    def _page(self, *, small: bool) -> int:
        return SMALL_SEGMENT if small else LARGE_SEGMENT

    def _worth_splitting(self, rest: int, *, small: bool) -> bool:
        return rest >= MIN_BLOCK

    def _cached(self, rounded: int, *, small: bool) -> Block | None:
        by_size = self._heap.pools[small].by_size
        block = super()._cached(rounded, small=small)
        if block is None:
            return None
        # A block before unmapped space counts as large as it can grow; the search goes on while the
        # next larger block counts less.
        index = self._heap.pools[small].index_of(rounded) + 1
        while index < len(by_size):
            other = self._heap.blocks[by_size[index][1]]
            if self._growable(other) >= self._growable(block):
                break
            block, index = other, index + 1
        return block

    def _growable(self, block: Block) -> int:
        following = self._heap.after(block)
        if following is None or following.state is not State.UNMAPPED:
            return block.size
        return block.size + following.size

    def _fresh(self, rounded: int, *, small: bool) -> Block | None:
        page = self._page(small=small)
        block: Block | None = self._lowest_run(rounded, small=small)
        if block is not None and block.state is State.UNMAPPED:
            block = self._map(block, min(block.size, rounded), page)
        while block is not None and block.size < rounded:
            following = self._heap.after(block)
            assert following is not None, "the stretch was long enough"
            block = self._map(following, min(rounded - block.size, following.size), page)
        return block

    def _lowest_run(self, rounded: int, *, small: bool) -> Block:
        """The lowest-address block that begins a run of adjacent unmapped or free blocks of
        `rounded` bytes in total.
        """
        for address in self._heap.pools[small].unmapped:
            start = self._heap.blocks[address]
            before = self._heap.before(start)
            if before is not None and before.state is State.FREE:
                start = before
            room = 0
            cursor: Block | None = start
            while cursor is not None and cursor.state is not State.ALLOCATED and room < rounded:
                room += cursor.size
                cursor = self._heap.after(cursor)
            if room >= rounded:
                return start
        # Addresses for 9/8 of the device let pages move to the end of the range.
        page = self._page(small=small)
        size = ceil_div(self.capacity_bytes + self.capacity_bytes // 8, page) * page
        return self._heap.open(
            max(size, ceil_div(rounded, page) * page), small=small, state=State.UNMAPPED
        )

    def _map(self, block: Block, size: int, page: int) -> Block | None:
        """Map the pages that the first `size` bytes of an unmapped block need."""
        mapped = ceil_div(size, page) * page
        if self.reserved_bytes + mapped > self._limit:
            return None
        self.reserved_bytes += mapped
        self._heap.strike(block)
        if mapped < block.size:
            rest = block._replace(address=block.address + mapped, size=block.size - mapped)
            self._heap.write(rest)
        self._tell("segment_map", block.address, mapped)
        return self._heap.merge(block._replace(size=mapped, state=State.FREE))

    def _release_idle(self, *, small: bool) -> None:
        page = self._page(small=small)
        for _, address in self._heap.pools[small].by_size.copy():
            self._unmap(self._heap.blocks[address], page)

    def _unmap(self, block: Block, page: int) -> None:
        """Unmap the whole pages inside a free block."""
        base = block.segment
        start = base + ceil_div(block.address - base, page) * page
        end = base + (block.end - base) // page * page
        if start >= end:
            return
        self._heap.strike(block)
        if start > block.address:
            self._heap.write(block._replace(size=start - block.address))
        if end < block.end:
            self._heap.write(block._replace(address=end, size=block.end - end))
        self.reserved_bytes -= end - start
        self._tell("segment_unmap", start, end - start)
        unmapped = self._heap.merge(Block(start, end - start, base, State.UNMAPPED))
        if self._heap.is_whole(unmapped):
            self._heap.close(unmapped)

    def places_for(self, size: int, most: int) -> int | None:
        return None  # pages are mapped and unmapped on the way

    def _obtainable(self, rounded: int) -> bool:
        return self.clone()._take(rounded) is not None

    def _largest_new(self) -> int:
        """Largest new allocation in bytes, by bisection over the sizes of the large pool, then over
        those of the small one.
        """
        for low, high in ((SMALL_SIZE, self._limit), (0, SMALL_SIZE)):
            fitting, most = low // MIN_BLOCK, high // MIN_BLOCK
            while fitting < most:
                middle = (fitting + most + 1) // 2
                if self.fits(middle * MIN_BLOCK):
                    fitting = middle
                else:
                    most = middle - 1
            if fitting * MIN_BLOCK > low:
                return fitting * MIN_BLOCK
        return 0
