"""Blocks in host memory, kept as vLLM keeps those of the device (v1/core/block_pool.py, 0.33)."""

from collections import OrderedDict

from kvsim.vllm.rules import FIRST_BLOCK


class HostBlocks:
    """Numbers from FIRST_BLOCK on.

    A block is found by its content's key once its store has ended. Free blocks are evicted from the
    front; those with content are appended at the end.
    """

    def __init__(self, num_blocks: int) -> None:
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(FIRST_BLOCK, num_blocks))
        self._owners = [0] * num_blocks
        self._key = [-1] * num_blocks
        self._known: dict[int, dict[int, None]] = {}  # blocks by content, oldest first
        self.num_usable = num_blocks - FIRST_BLOCK

    @property
    def num_free(self) -> int:
        """Blocks that nothing reads or writes."""
        return len(self._free)

    @property
    def num_known(self) -> int:
        """Contents that can be found."""
        return len(self._known)

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """The free blocks in the order in which they leave, each with its key."""
        return tuple((block, self._key[block]) for block in self._free)

    def find(self, key: int) -> int:
        """A block with this content, the oldest one; 0: there is none."""
        return next(iter(self._known.get(key, ())), 0)

    def key(self, block: int) -> int:
        """Key of a block's content; -1: it cannot be hit."""
        return self._key[block]

    def take(self, evicted: list[int]) -> int:
        """The first free block, its content forgotten; its key is added to `evicted`."""
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
        """One more reads these, which do not leave meanwhile."""
        for block in blocks:
            if not self._owners[block]:
                del self._free[block]
            self._owners[block] += 1

    def name(self, block: int, key: int) -> None:
        """A block in use has its content, which others may have too."""
        self._known.setdefault(key, {})[block] = None
        self._key[block] = key

    def let_go(self, blocks: list[int]) -> None:
        """One less reads or writes these; they come back in this order, those without content to
        the front.
        """
        for block in blocks:
            self._owners[block] -= 1
            if not self._owners[block]:
                self._free[block] = None
                if self._key[block] < 0:
                    self._free.move_to_end(block, last=False)
