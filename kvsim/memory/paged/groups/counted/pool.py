"""The pool of blocks of several groups, counted: a block has a number while it has a name.

As many are taken, kept and forgotten as of `BlockPool`, in the same order. The free queue is a
number of blank blocks in front; behind them blocks with names, each by its number, and heaps of
those whose content was known and that nobody can name, which are told by negative numbers.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from kvsim.memory.paged.pool import Pool
from kvsim.plumbing.errors import InvariantError

NOBODY = 0


class CountedPool(Pool):
    """Blank blocks return to the front, as of the versions from 0.27 on."""

    def __init__(self, num_blocks: int) -> None:
        self._queue: OrderedDict[int, None] = OrderedDict()
        super().__init__(num_blocks, self._queue)
        self._front = self.num_free  # blank ones
        self._opened = 0  # of the heap that goes out next
        self._heaps: dict[int, int] = {}  # how many blocks lie in each that is still whole
        self._last = NOBODY  # the heap at the end of the queue
        self._num_heaps = self._num_named = 0

    # --- moving blocks -------------------------------------------------------------------------

    def take(self, count: int) -> None:
        """`count` <= num_free blocks leave the front of the queue, their content is forgotten."""
        self.num_free -= count
        if count <= self._front:
            self._front -= count
            return
        if self.num_free < 0:
            raise InvariantError(f"{count} blocks taken from {self.num_free + count} free ones")
        count -= self._front
        self._front = 0
        self.num_cached_free -= count
        self.num_evicted += count
        if count <= self._opened:
            self._opened -= count
        else:
            self._forget(count)

    def _forget(self, count: int) -> None:
        """Take `count` blocks that hold something off the queue, more than the open heap has."""
        count -= self._opened
        self._opened = 0
        named: list[int] = []
        while count:
            block, _ = self._queue.popitem(last=False)
            if block > 0:
                named.append(block)
                count -= 1
                continue
            heap = self._heaps.pop(block)
            if block == self._last:
                self._last = NOBODY
            if heap > count:
                self._opened = heap - count
                break
            count -= heap
        if named:
            self._names.forget_all(named, None)
            self.version += 1

    def give_back(self, num_blank: int, num_nameless: int = 0) -> None:
        """Blocks of one owner, of which nobody else has any: so many hold nothing, and so many what
        nobody can name.
        """
        self._front += num_blank
        self.num_free += num_blank + num_nameless
        if num_nameless:
            self.num_cached_free += num_nameless
            if self._last:
                self._heaps[self._last] += num_nameless
            else:
                self._num_heaps += 1
                self._last = -self._num_heaps
                self._heaps[self._last] = num_nameless
                self._queue[self._last] = None

    def give_back_named(self, blocks: Sequence[int]) -> int:
        """One owner returns these blocks, who come first go first. Those others still hold stay
        with them; returns how many these are.
        """
        alone = blocks
        if self._extra_refs:
            alone = [block for block in blocks if not self.drop(block)]
        if alone:
            self._queue.update(dict.fromkeys(alone))
            self._last = NOBODY
            self.num_free += len(alone)
            self.num_cached_free += len(alone)
        return len(blocks) - len(alone)

    def numbered(self, count: int) -> range:
        """So many blocks, which somebody holds, get numbers, to be given names."""
        first = self._num_named + 1
        self._num_named += count
        return range(first, first + count)

    def _revived(self, blocks: Sequence[int]) -> None:
        self._last = next(reversed(self._queue), NOBODY) if self._heaps else NOBODY
        self._last = min(self._last, NOBODY)

    # --- the whole of it -----------------------------------------------------------------------

    def check(self, named: Iterable[Sequence[int]], held: int) -> None:
        """Raise InvariantError unless `held` blocks, the named ones by all owners among them, and
        the free ones are all there are.
        """
        owners: dict[int, int] = {}
        for blocks in named:
            for block in blocks:
                owners[block] = owners.get(block, 0) + 1
        wrong = {b: n for b, n in owners.items() if n != 1 + self._extra_refs.get(b, 0)}
        shared = sum(owners.values()) - len(owners)
        if wrong or self._extra_refs.keys() - owners.keys() or shared != self.num_shared:
            raise InvariantError(f"reference counts differ from owners: {wrong}")
        free = [block for block in self._queue if block > 0]
        if owners.keys() & set(free) or owners.keys() | set(free) != self._names.key_of.keys():
            raise InvariantError("a block is held and free, or its name is lost")
        cached = len(free) + self._opened + sum(self._heaps.values())
        if cached != self.num_cached_free or cached + self._front != self.num_free:
            raise InvariantError(f"{cached} cached and {self._front} blank blocks miscounted")
        if len(free) + len(self._heaps) != len(self._queue):
            raise InvariantError("a heap is lost")
        if held - shared + self.num_free != self.num_blocks - 1:
            raise InvariantError(f"{held - shared} held + {self.num_free} free blocks")
