"""The parts of torch's caching allocator that do not depend on how the device gives memory.

Requests are rounded up to 512 bytes. The free block of least (size, address) is taken, and split if
the rest is large enough to be kept. Free neighbours within a segment merge. If the device is out of
memory, idle memory is released to the device, and the request is tried again.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Self

from kvsim.memory.arena.placement import Arena, Placement, unknown_region
from kvsim.memory.arena.torch_blocks import (
    SMALL_SEGMENT,
    SMALL_SIZE,
    Block,
    Segment,
    State,
    round_size,
)
from kvsim.memory.arena.torch_heap import Heap


class TorchArena(Arena):
    """Segments of blocks on a device of capacity_bytes; a subclass requests memory from the device.

    reserved_bytes: bytes obtained from the device. expandable: segments are address ranges into
    which memory is mapped.
    """

    expandable: ClassVar[bool]

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
        """Allocate a block of `rounded` bytes, or the whole free block if its rest is too small to
        split off.
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

    @abstractmethod
    def _worth_splitting(self, rest: int, *, small: bool) -> bool:
        """Whether the unused `rest` bytes of an allocated block become a free block."""

    def _cached(self, rounded: int, *, small: bool) -> Block | None:
        """Best fit: the smallest free block of at least `rounded` bytes in the pool, not yet taken;
        None without one.
        """
        pool = self._heap.pools[small]
        index = pool.index_of(rounded)
        return self._heap.blocks[pool.by_size[index][1]] if index < len(pool.by_size) else None

    @abstractmethod
    def _fresh(self, rounded: int, *, small: bool) -> Block | None:
        """A free block on memory newly requested from the device; None if the device is out of
        memory.
        """

    @abstractmethod
    def _release_idle(self, *, small: bool) -> None:
        """Return memory without allocations to the device, as `empty_cache` does. small: of the
        pool for small requests.
        """

    @abstractmethod
    def _obtainable(self, rounded: int) -> bool:
        """Whether the device has memory for `rounded` bytes once all idle memory is returned."""

    @abstractmethod
    def _largest_new(self) -> int:
        """The largest request in bytes that memory newly requested from the device could serve."""

    def _allocated(self, address: int) -> Block:
        block = self._heap.blocks.get(address)
        if block is None or block.state is not State.ALLOCATED:
            raise unknown_region(address)
        return block

    def _tell(self, action: str, address: int, size: int) -> None:
        if self.listener is not None:
            self.listener.device(action, address, size)
