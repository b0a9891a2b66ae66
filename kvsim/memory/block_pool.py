"""The pool of blocks: who is free, in which order they go out, and what they still hold.

The free queue, as vLLM keeps it (v1/core/block_pool.py, 0.33): blocks without known content return
to the front and leave first; blocks whose content may still be hit return to the back, so that the
least recently used goes first. That makes the queue three parts in a row: a stack of returned blank
blocks, the blocks never used yet, and the cached ones in order of their return. vLLM 0.11 returned
all blocks to the back (`blank_first = False`).
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from kvsim.errors import InvariantError

NULL_BLOCK = 0


class BlockPool:
    """Blocks 0 .. num_blocks - 1, block 0 set aside as the null block.

    A block's content is an integer key (see content.py); equal content, equal key. A block may hold
    content without a key (`keyless`): known, so cached, but nameable by nobody yet.
    """

    def __init__(self, num_blocks: int, *, blank_first: bool = True) -> None:
        self.num_blocks = num_blocks
        self.blank_first = blank_first
        self.num_free = num_blocks - 1
        self.num_cached_free = 0
        self.num_evicted = 0
        self.version = 0  # changes whenever a lookup could answer differently
        self._blank: list[int] = []
        self._fresh = NULL_BLOCK + 1
        self._back: OrderedDict[int, None] = OrderedDict()
        self._cached = bytearray(num_blocks)
        self._key_of: dict[int, int] = {}
        self._blocks_of: dict[int, list[int]] = {}
        self._extra_refs: dict[int, int] = {}

    def take(self, count: int) -> list[int]:
        """Take `count` <= num_free blocks from the front of the queue, forgetting their content."""
        self.num_free -= count
        if self.num_free < 0:
            raise InvariantError(f"{count} blocks taken from {self.num_free + count} free ones")
        blank = self._blank
        if count <= len(blank):
            if count == 1:
                return [blank.pop()]
            blocks = blank[: -count - 1 : -1]
            if count:
                del blank[-count:]
            return blocks
        blocks = blank[::-1]
        blank.clear()
        fresh = min(count - len(blocks), self.num_blocks - self._fresh)
        if fresh:
            blocks.extend(range(self._fresh, self._fresh + fresh))
            self._fresh += fresh
        while len(blocks) < count:
            block, _ = self._back.popitem(last=False)
            if self._cached[block]:
                self._forget(block)
            blocks.append(block)
        return blocks

    def give_back(self, blocks: Sequence[int], num_cached: int) -> int:
        """One owner returns its table; the first `num_cached` blocks hold known content.

        Blocks others still hold stay with them. Returns how many these are.
        """
        shared, extra_refs, back = 0, self._extra_refs, self._back
        blank = blocks[num_cached:]
        if self.blank_first:
            self._blank.extend(blank)
        else:
            back.update(dict.fromkeys(reversed(blank)))
        for block in reversed(blocks[:num_cached]):
            if block in extra_refs:
                shared += 1
                if extra_refs[block] == 1:
                    del extra_refs[block]
                else:
                    extra_refs[block] -= 1
            else:
                self._cached[block] = 1
                back[block] = None
        self.version += 1
        self.num_cached_free += min(num_cached, len(blocks)) - shared
        self.num_free += len(blocks) - shared
        return shared

    def share(self, blocks: Iterable[int]) -> int:
        """One more owner for each block; free ones leave the queue. Returns how many were in use."""
        in_use = 0
        for block in blocks:
            if block in self._back:
                del self._back[block]
                self.num_free -= 1
                self.num_cached_free -= 1
            else:
                self._extra_refs[block] = self._extra_refs.get(block, 0) + 1
                in_use += 1
        return in_use

    def register(self, block: int, key: int) -> None:
        """`block` holds the content `key` from now on. Equal blocks are not merged."""
        self._cached[block] = 1
        self._key_of[block] = key
        self._blocks_of.setdefault(key, []).append(block)
        self.version += 1

    def find(self, key: int) -> int | None:
        """The oldest block that holds `key`, or None."""
        blocks = self._blocks_of.get(key)
        return blocks[0] if blocks else None

    def is_free(self, block: int) -> bool:
        """Whether a block that holds content waits in the free queue."""
        return block in self._back

    def _forget(self, block: int) -> None:
        self._cached[block] = 0
        self.num_cached_free -= 1
        self.num_evicted += 1
        key = self._key_of.pop(block, None)
        if key is None:
            return
        blocks = self._blocks_of[key]
        if len(blocks) == 1:
            del self._blocks_of[key]
        else:
            blocks.remove(block)
        self.version += 1

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise InvariantError unless every block is free or owned, never both, never lost."""
        owners: dict[int, int] = {}
        for table in tables:
            for block in table:
                owners[block] = owners.get(block, 0) + 1
        free = [*self._blank, *range(self._fresh, self.num_blocks), *self._back]
        if len(free) != self.num_free or len(set(free)) != len(free):
            raise InvariantError(f"free queue holds {len(free)} blocks, counted {self.num_free}")
        if NULL_BLOCK in owners or NULL_BLOCK in free:
            raise InvariantError("the null block was handed out")
        both = owners.keys() & set(free)
        if both or len(owners) + len(free) != self.num_blocks - 1:
            raise InvariantError(
                f"{len(owners)} owned + {len(free)} free of {self.num_blocks - 1}; both: {both}"
            )
        wrong = {b: n for b, n in owners.items() if n != 1 + self._extra_refs.get(b, 0)}
        if wrong or self._extra_refs.keys() - owners.keys():
            raise InvariantError(f"reference counts differ from owners: {wrong}")
        if sum(1 for block in self._back if self._cached[block]) != self.num_cached_free:
            raise InvariantError(f"cached free blocks miscounted as {self.num_cached_free}")
