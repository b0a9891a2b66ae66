"""The pool of blocks of several groups, counted: a block has a number while it has a name.

As many are taken, kept and forgotten as of `BlockPool`, in the same order. The free queue is a
number of blank blocks in front; behind them blocks with names, each by its number, and heaps of
those whose content was known and that nobody can name, kept for one reason, which are told by
negative numbers.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from kvsim.memory.paged.kept import PROMPT
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
        self._opened_why = PROMPT
        # How many blocks lie in each that is still whole, and why they do.
        self._heaps: dict[int, tuple[int, int]] = {}
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
            self.kept.count(self._opened_why, -count)
        else:
            self._forget(count)

    def _forget(self, count: int) -> None:
        """Take `count` blocks that hold something off the queue, more than the open heap has."""
        kept = self.kept
        count -= self._opened
        kept.count(self._opened_why, -self._opened)
        self._opened = 0
        named: list[int] = []
        while count:
            block, _ = self._queue.popitem(last=False)
            if block > 0:
                named.append(block)
                count -= 1
                continue
            heap, why = self._heaps.pop(block)
            if block == self._last:
                self._last = NOBODY
            if heap > count:
                self._opened, self._opened_why = heap - count, why
                kept.count(why, -count)
                break
            kept.count(why, -heap)
            count -= heap
        if named:
            self._names.forget_all(named, None)
            kept.remove(named)
            self.version += 1

    def give_back(self, num_blank: int) -> None:
        """So many blocks that hold nothing, of one owner, nobody else having any of them."""
        self._front += num_blank
        self.num_free += num_blank

    def give_back_nameless(self, count: int, why: int) -> None:
        """The same of so many that hold what nobody can name, kept for `why`."""
        if not count:
            return
        self.num_free += count
        self.num_cached_free += count
        self.kept.count(why, count)
        if self._last:
            before, last_why = self._heaps[self._last]
            if last_why == why:
                self._heaps[self._last] = before + count, why
                return
        self._num_heaps += 1
        self._last = -self._num_heaps
        self._heaps[self._last] = count, why
        self._queue[self._last] = None

    def give_back_named(self, blocks: Sequence[int], why: int, num_prompt: int) -> int:
        """One owner returns these blocks, who come first go first; they are kept for `why`, but for
        the last `num_prompt`. Those others still hold stay with them; returns how many these are.
        """
        alone = blocks
        if self._extra_refs:
            alone = [block for block in blocks if not self.drop(block)]
        if alone:
            self._queue.update(dict.fromkeys(alone))
            self._last = NOBODY
            self.num_free += len(alone)
            self.num_cached_free += len(alone)
            others = blocks[: len(blocks) - num_prompt]
            if len(alone) < len(blocks):
                others = [block for block in others if block in self._queue]
            self.kept.add(others, why)
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
        heaps = [*self._heaps.values(), (self._opened, self._opened_why)]
        cached = len(free) + sum(num for num, _ in heaps)
        if cached != self.num_cached_free or cached + self._front != self.num_free:
            raise InvariantError(f"{cached} cached and {self._front} blank blocks miscounted")
        if len(free) + len(self._heaps) != len(self._queue):
            raise InvariantError("a heap is lost")
        self.kept.check(set(free), heaps)
        if held - shared + self.num_free != self.num_blocks - 1:
            raise InvariantError(f"{held - shared} held + {self.num_free} free blocks")
