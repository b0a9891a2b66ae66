"""What every pool of blocks tells: how many are free; and, where blocks have numbers, how many
sequences hold each, and what it holds.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from kvsim.memory.paged.block_names import BlockNames
from kvsim.memory.paged.eviction.policy import FreeContent
from kvsim.memory.paged.kept import Kept


class Pool:
    """A pool of `num_blocks` blocks, one of them the null block.

    A block's content is an integer key (see content.py); equal content, equal key.

    tracked: blocks have numbers; else nobody can tell one from another.
    num_shared: owners beyond the first, over all blocks. version: changes whenever a lookup could
    answer differently. kept: why blocks are cached.
    """

    def __init__(self, num_blocks: int, *, tracked: bool = True) -> None:
        self.tracked = tracked
        self.num_blocks = num_blocks
        self.num_free = num_blocks - 1
        self.num_cached_free = 0
        self.kept = Kept()
        self.num_evicted = 0
        self.num_shared = 0
        self.version = 0


class NumberedPool(Pool):
    """A pool whose blocks have numbers. Which block goes out next is a subclass's part.

    back: the free blocks that are found by keys, and what goes out among them.
    """

    def __init__(self, num_blocks: int, back: FreeContent) -> None:
        super().__init__(num_blocks)
        self._back = back
        self._names = BlockNames()
        self._extra_refs: dict[int, int] = {}

    # --- owners --------------------------------------------------------------------------------

    def drop(self, block: int) -> bool:
        """One of several owners gives `block` up; False if there is but one, who keeps it."""
        others = self._extra_refs.get(block, 0)
        if not others:
            return False
        self.num_shared -= 1
        if others == 1:
            del self._extra_refs[block]
        else:
            self._extra_refs[block] = others - 1
        return True

    def share(self, blocks: Iterable[int]) -> int:
        """One more owner for each block; free ones leave the queue. Returns how many had one."""
        in_use = 0
        revived = []
        for block in blocks:
            if block in self._back:
                del self._back[block]
                revived.append(block)
            else:
                self._extra_refs[block] = self._extra_refs.get(block, 0) + 1
                in_use += 1
        self.num_free -= len(revived)
        self.num_cached_free -= len(revived)
        self.num_shared += in_use
        self.kept.remove(revived)
        self._revived(revived)
        return in_use

    def _revived(self, blocks: Sequence[int]) -> None:
        """These were free, and are somebody's with the content they had kept."""
        return

    def is_shared(self, block: int) -> bool:
        """Whether `block` has several owners."""
        return block in self._extra_refs

    def num_owners(self, block: int) -> int:
        """Of a block that is not free."""
        return 1 + self._extra_refs.get(block, 0)

    def num_leading_shared(self, blocks: Iterable[int]) -> int:
        """How many of these blocks, up to the first without, have several owners."""
        return sum(1 for _ in takewhile(self._extra_refs.__contains__, blocks))

    # --- content -------------------------------------------------------------------------------

    def key_of(self, block: int) -> int | None:
        """The key of what `block` holds; None if nobody can name it."""
        return self._names.key_of.get(block)

    def register(self, blocks: Sequence[int], keys: Sequence[int]) -> None:
        """Each block holds the content of its key from now on. Equal blocks are not merged."""
        self._names.register(blocks, keys)
        self.version += 1

    def add_key(self, block: int, key: int) -> None:
        """`block` can be found by `key` too, unless it could already."""
        if block not in self._names.key_of:
            self.register((block,), (key,))
        elif self._names.add(block, key):
            self.version += 1

    def forget(self, block: int) -> list[int]:
        """A block that somebody holds is found by no key any more; returns those it had."""
        keys = self._names.forget(block)
        if keys:
            self.version += 1
        return keys

    def find(self, keys: Iterable[int]) -> list[int]:
        """The oldest blocks that hold `keys`, up to the first key that none holds."""
        return self._names.find(keys)

    def has_duplicate_free(self, keys: Sequence[int]) -> bool:
        """Whether some of these keys, all held, may be found in use once a free block goes."""
        return any(block in self._back for block in self._names.with_younger(keys))

    def num_free_of(self, blocks: Sequence[int]) -> int:
        """How many of these blocks, which hold content, wait in the free queue."""
        return len(self._back.keys() & blocks) if blocks else 0
