"""Blocks in host memory, managed as vLLM's pool of device blocks (v1/core/block_pool.py, 0.33)."""

from collections import OrderedDict

from kvsim.vllm.rules import FIRST_BLOCK


class HostBlocks:
    """A pool of host blocks, numbered from FIRST_BLOCK on.

    A block can be hit once its store has ended. Free blocks are evicted from the front of a queue;
    freed blocks with content are appended at the end.
    """

    def __init__(self, num_blocks: int) -> None:
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(FIRST_BLOCK, num_blocks))
        self._owners = [0] * num_blocks
        self._key = [-1] * num_blocks
        self._known: dict[int, dict[int, None]] = {}  # blocks by content, oldest first
        self.num_usable = num_blocks - FIRST_BLOCK

    @property
    def num_free(self) -> int:
        """Number of blocks that no copy reads or writes."""
        return len(self._free)

    @property
    def num_known(self) -> int:
        """Number of distinct contents that can be hit."""
        return len(self._known)

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """Free blocks in order of eviction, each with its key."""
        return tuple((block, self._key[block]) for block in self._free)

    def find(self, key: int) -> int:
        """The oldest block with this content; 0: there is none."""
        return next(iter(self._known.get(key, ())), 0)

    def key(self, block: int) -> int:
        """Key of a block's content; -1: it cannot be hit."""
        return self._key[block]

    def take(self, evicted: list[int]) -> int:
        """Evict and return the first free block; appends its key to `evicted`, if it had
        content.
        """
        block, _ = self._free.popitem(last=False)
        key = self._key[block]
        if key >= 0:
            blocks = self._known[key]
            del blocks[block]
            if not blocks:
                del self._known[key]
            self._key[block] = -1
            evicted.append(key)
        self._owners[block] = 1
        return block

    def hold(self, blocks: list[int]) -> None:
        """Add a reader to each of these blocks, which are not evicted meanwhile."""
        for block in blocks:
            if not self._owners[block]:
                del self._free[block]
            self._owners[block] += 1

    def name(self, block: int, key: int) -> None:
        """Enter a block into the cache with its key; other blocks may have the same key."""
        self._known.setdefault(key, {})[block] = None
        self._key[block] = key

    def let_go(self, blocks: list[int]) -> None:
        """Remove a reader or writer from each of these blocks; those without any become free.

        They are appended to the queue in this order; blocks without content go to its front.
        """
        for block in blocks:
            self._owners[block] -= 1
            if not self._owners[block]:
                self._free[block] = None
                if self._key[block] < 0:
                    self._free.move_to_end(block, last=False)
