"""The data structures of torch's caching allocator: segments, their blocks, and the free blocks."""

from bisect import bisect_left, insort
from itertools import pairwise

from kvsim.memory.arena.torch_blocks import Block, Segment, State
from kvsim.plumbing.errors import InvariantError


class FreeBlocks:
    """The free blocks of one pool by (size, address), and its unmapped ranges by address."""

    __slots__ = ("by_size", "unmapped")

    def __init__(self) -> None:
        self.by_size: list[tuple[int, int]] = []
        self.unmapped: list[int] = []

    def add(self, block: Block) -> None:
        """Index a free or unmapped block; an allocated one is ignored."""
        if block.state is State.FREE:
            insort(self.by_size, (block.size, block.address))
        elif block.state is State.UNMAPPED:
            insort(self.unmapped, block.address)

    def remove(self, block: Block) -> None:
        """Remove a free or unmapped block from the index."""
        if block.state is State.FREE:
            del self.by_size[bisect_left(self.by_size, (block.size, block.address))]
        elif block.state is State.UNMAPPED:
            del self.unmapped[bisect_left(self.unmapped, block.address)]

    def index_of(self, size: int) -> int:
        """Index in `by_size` of the first block of at least `size` bytes."""
        return bisect_left(self.by_size, (size, -1))

    def copy(self) -> "FreeBlocks":
        """An independent copy."""
        twin = FreeBlocks()
        twin.by_size, twin.unmapped = self.by_size.copy(), self.unmapped.copy()
        return twin


class Heap:
    """Blocks by address, segments by address, and a pool of free blocks for small and for large
    requests. Blocks are immutable: a change removes the old block and adds a new one.
    """

    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}
        self.blocks: dict[int, Block] = {}
        self.pools = {True: FreeBlocks(), False: FreeBlocks()}  # by Segment.small
        self._ending: dict[int, int] = {}  # address of the block by its end

    def copy(self) -> "Heap":
        """An independent copy."""
        twin = Heap()
        twin.segments, twin.blocks = self.segments.copy(), self.blocks.copy()
        twin.pools = {small: pool.copy() for small, pool in self.pools.items()}
        twin._ending = self._ending.copy()
        return twin

    def open(self, size: int, *, small: bool, state: State) -> Block:
        """Add a segment that is one block of `size` bytes, at the lowest gap of the address space
        that holds the segment.
        """
        address = 0
        for _, other in sorted(self.segments.items()):
            if other.address - address >= size:
                break
            address = other.end
        self.segments[address] = Segment(address, size, small)
        block = Block(address, size, address, state)
        self.write(block)
        return block

    def close(self, block: Block) -> None:
        """Remove the segment of which `block` is the whole."""
        self.strike(block)
        del self.segments[block.segment]

    def is_whole(self, block: Block) -> bool:
        """Whether a block is all of its segment."""
        return block.size == self.segments[block.segment].size

    def before(self, block: Block) -> Block | None:
        """The neighbour in the same segment that ends where `block` begins."""
        address = self._ending.get(block.address)
        found = None if address is None else self.blocks[address]
        return found if found and found.segment == block.segment else None

    def after(self, block: Block) -> Block | None:
        """The neighbour in the same segment that begins where `block` ends."""
        found = self.blocks.get(block.end)
        return found if found and found.segment == block.segment else None

    def write(self, block: Block) -> None:
        """Add a block."""
        self.blocks[block.address] = block
        self._ending[block.end] = block.address
        self.pools[self.segments[block.segment].small].add(block)

    def strike(self, block: Block) -> None:
        """Remove a block."""
        del self.blocks[block.address]
        del self._ending[block.end]
        self.pools[self.segments[block.segment].small].remove(block)

    def merge(self, block: Block) -> Block:
        """Add a free or unmapped block, merged with adjacent blocks of the same state."""
        for neighbour in (self.before(block), self.after(block)):
            if neighbour is not None and neighbour.state is block.state:
                self.strike(neighbour)
                start = min(block.address, neighbour.address)
                block = Block(start, block.size + neighbour.size, block.segment, block.state)
        self.write(block)
        return block

    def carve(self, block: Block, size: int) -> Block:
        """Allocate the first `size` bytes of a free block; the rest stays a free block."""
        address, whole, segment, _ = block
        by_size = self.pools[self.segments[segment].small].by_size
        del by_size[bisect_left(by_size, (whole, address))]
        taken = self.blocks[address] = Block(address, size, segment, State.ALLOCATED)
        if size < whole:
            start, rest = address + size, whole - size
            self.blocks[start] = Block(start, rest, segment, State.FREE)
            self._ending[start] = address
            self._ending[address + whole] = start
            insort(by_size, (rest, start))
        return taken

    def give_back(self, block: Block) -> None:
        """Free an allocated block and merge it with its free neighbours."""
        start, size, segment, _ = block
        by_size = self.pools[self.segments[segment].small].by_size
        before, after = self.before(block), self.after(block)
        if after is not None and after.state is State.FREE:
            del by_size[bisect_left(by_size, (after.size, after.address))]
            del self.blocks[after.address], self._ending[after.address]
            size += after.size
        if before is not None and before.state is State.FREE:
            del by_size[bisect_left(by_size, (before.size, before.address))]
            del self.blocks[start], self._ending[start]
            start, size = before.address, size + before.size
        self.blocks[start] = Block(start, size, segment, State.FREE)
        self._ending[start + size] = start
        insort(by_size, (size, start))

    def check(self, reserved_bytes: int) -> None:
        """Raise InvariantError unless the blocks tile the segments and the pools hold the free
        ones.
        """
        mapped = sum(b.size for b in self.blocks.values() if b.state is not State.UNMAPPED)
        if mapped != reserved_bytes:
            raise InvariantError(f"blocks sum to {mapped}, reserved are {reserved_bytes}")
        for a, b in pairwise(sorted(self.blocks.values())):
            if a.segment == b.segment and (a.end != b.address or a.state is b.state is State.FREE):
                raise InvariantError(f"blocks at {a.address} and {b.address} gape or lie unmerged")
        for small, pool in self.pools.items():
            own = [b for b in self.blocks.values() if self.segments[b.segment].small is small]
            free = sorted((b.size, b.address) for b in own if b.state is State.FREE)
            if free != pool.by_size:
                raise InvariantError("a pool's free blocks are not those of its segments")
            if sorted(b.address for b in own if b.state is State.UNMAPPED) != pool.unmapped:
                raise InvariantError("a pool's unmapped ranges are not those of its segments")
