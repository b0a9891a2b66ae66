"""The free blocks of a pool, in the order in which they are allocated, and their cached content.

The free queue is that of vLLM (v1/core/block_pool.py, 0.33): blocks without known content return to
the front and leave first; blocks whose content may still be hit return to the back, so that the
least recently used leaves first. The queue is a number of blank blocks in front and extents of
cached blocks behind them. vLLM 0.11 returned all blocks to the back (`blank_first = False`). The
cost of an operation grows with the extents that it touches, not with their blocks.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from kvsim.memory.paged.blocks import BLANK, NO_BLOCKS, PROMPT, Extent
from kvsim.memory.paged.eviction.policy import Eviction
from kvsim.memory.paged.free_queue import BlankBlocks, FreeQueue, RankedQueue
from kvsim.memory.paged.known_blocks import KnownBlocks
from kvsim.plumbing.errors import InvariantError


class Listener(Protocol):
    """Is notified when blocks get a first owner or lose the last one."""

    def taken(self, blocks: Sequence[int]) -> None:
        """Free blocks got an owner; their content, if any, is lost."""

    def revived(self, blocks: Sequence[int]) -> None:
        """Free blocks got an owner together with their cached content."""

    def freed(self, cached: Sequence[int], blank: Sequence[int]) -> None:
        """Blocks lost their last owner: `cached` keep their content, `blank` have none."""


class BlockQueue(KnownBlocks):
    """The free blocks of a pool of `num_blocks` blocks, one of which is the null block.

    tracked: blocks have numbers from 1 on; else blocks are counted, and every list of numbers is
    empty. singly: every extent is one block. blank_first: blank blocks return to the front.
    eviction: policy that chooses the cached block to evict; None: least recently used. listener: is
    notified of tracked blocks. on_evict: is called with the key of each evicted block. kept:
    numbers of cached blocks, by reason; PROMPT is not counted.
    """

    def __init__(
        self,
        num_blocks: int,
        num_groups: int,
        *,
        tracked: bool = False,
        singly: bool = False,
        blank_first: bool = True,
        eviction: Eviction | None = None,
    ) -> None:
        super().__init__(num_groups)
        self.tracked, self.singly = tracked, singly
        self.num_blocks, self.num_free = num_blocks, num_blocks - 1
        self.num_cached_free = self.num_evicted = 0
        self.kept = [0, 0, 0, 0]
        self.on_evict: Callable[[int], None] | None = None
        self.listener: Listener | None = None
        self.blank_first = blank_first or eviction is not None
        self._freed: list[int] = []  # not yet reported to the listener
        self._freed_blank: list[int] = []
        self._front = BlankBlocks(self.num_free, tracked=tracked)
        self._ranked = None if eviction is None else RankedQueue(eviction, num_groups)
        self.timed = eviction if eviction is not None and eviction.lapses else None
        self._back = FreeQueue()

    # --- looking at the queue ------------------------------------------------------------------

    def blank_numbers(self) -> list[int]:
        """The blank blocks, in the order in which they leave."""
        return self._front.numbers()

    def waiting_block(self, number: int) -> Extent | None:
        """The extent of one block `number` behind the blank blocks; None: it is not there."""
        each = self._back.first
        while each is not None and each.blocks[0] != number:
            each = self._back.behind(each)
        return each

    def waits(self, extent: Extent) -> bool:
        """Whether an extent waits behind the blank blocks."""
        return not extent.owners and extent.later is not None

    def waiting_behind(self, extent: Extent | None, most: int) -> list[Extent]:
        """At most `most` extents that wait behind `extent`; None: from the first on."""
        found: list[Extent] = []
        each = self._back.first if extent is None else self._back.behind(extent)
        while each is not None and len(found) < most:
            found.append(each)
            each = self._back.behind(each)
        return found

    # --- taking --------------------------------------------------------------------------------

    def take(self, count: int) -> list[int]:
        """Take `count` <= num_free blocks from the front of the queue; their content is evicted."""
        self.num_free -= count
        if self.num_free < 0:
            raise InvariantError(f"{count} blocks taken from {self.num_free + count} free ones")
        if not self.tracked and count <= self._front.num:
            self._front.num -= count
            return NO_BLOCKS
        left = max(0, count - self._front.num)
        blocks = self._front.take(count - left)
        if left:
            if self._ranked is None:
                self._evict(left, blocks)
            else:
                for extent in self._ranked.take(left):
                    self._evict_from(extent, 1, blocks)
        if self.listener is not None:
            self.listener.taken(blocks)
        return blocks

    def _evict(self, count: int, blocks: list[int]) -> None:
        """Take `count` blocks out of the waiting extents; append their numbers to `blocks`."""
        back = self._back
        while count:
            extent = back.first
            assert extent is not None
            gone = count if count < extent.num else extent.num
            if gone == extent.num:
                back.remove(extent)
            self._evict_from(extent, gone, blocks)
            count -= gone

    def _evict_from(self, extent: Extent, gone: int, blocks: list[int]) -> None:
        """Evict the last `gone` blocks of an extent; append their numbers to `blocks`."""
        num, key = extent.num, extent.key
        left = num - gone
        if key != BLANK:
            self.num_cached_free -= gone
            self.num_evicted += gone
            num_prompt = extent.num_prompt
            if num_prompt > left:
                extent.num_prompt = left
            if extent.why != PROMPT:
                self.kept[extent.why] -= gone - num_prompt + extent.num_prompt
        if self.tracked:
            blocks.extend(reversed(extent.blocks[left:]))
            del extent.blocks[left:]
        if key < 0:
            extent.num = left
            return
        if self.on_evict is not None:
            for name in range(key + num - 1, key + left - 1, -1):
                self.on_evict(name)
        if extent.aliases:
            self.forget(extent)
        else:
            self._known[extent.group].forget(extent, gone)
            self.version += 1

    # --- giving back ---------------------------------------------------------------------------

    def _count_kept(self, extent: Extent, sign: int) -> None:
        if extent.why != PROMPT:
            self.kept[extent.why] += sign * (extent.num - extent.num_prompt)

    def given_back(self) -> None:
        """A table has returned a set of blocks: notify the listener."""
        if self.listener is not None:
            self.listener.freed(self._freed, self._freed_blank)
            self._freed, self._freed_blank = [], []

    def _give_blank(self, count: int, blocks: list[int]) -> None:
        if self.blank_first:
            self._front.give(count, blocks)
            self.num_free += count
        else:
            self._give_nameless(BLANK, count, 0, count, blocks)

    def _give_nameless(
        self, key: int, count: int, why: int, num_prompt: int, blocks: list[int]
    ) -> None:
        self.num_free += count
        last = None if self.tracked else self._back.last
        # The last blocks of an extent are evicted first: outputs, then a prompt.
        in_order = last is not None and (num_prompt == count or not last.num_prompt)
        if in_order and last is not None and last.key == key and last.why == why:
            last.num += count
            last.num_prompt += num_prompt
            if why != PROMPT:
                self.kept[why] += count - num_prompt
            return
        extent = Extent(key, count)
        extent.blocks = blocks
        extent.why, extent.num_prompt = why, num_prompt
        self._count_kept(extent, 1)
        self._back.append(extent)

    def _give_named(self, extent: Extent, why: int, num_prompt: int) -> None:
        """The last owner frees `extent`; later blocks of its run may be free already."""
        extent.owners = 0
        extent.after = None
        extent.why, extent.num_prompt = why, min(num_prompt, extent.num)
        self._count_kept(extent, 1)
        last = self._back.last
        if (
            last is not None
            and last.key == extent.end
            and last.group == extent.group
            and not (self.singly or last.is_younger or extent.is_younger)
            and (extent.num_prompt == extent.num or not last.num_prompt)
        ):
            self._back.remove(last)
            extent.num_prompt += last.num_prompt
            self._known[extent.group].join(extent, last)
        self._back.append(extent)

    def name(self, extent: Extent, key: int) -> None:
        had = extent.key
        super().name(extent, key)
        if self._ranked is not None and had < 0:
            self._ranked.registered(extent)

    # --- the queue as it is --------------------------------------------------------------------

    def waiting(self) -> Iterable[Extent]:
        """The free extents behind the blank blocks, in the order in which they leave."""
        return self._back if self._ranked is None else self._ranked

    def free_queue(self) -> list[tuple[int, int]]:
        """The free blocks in the order in which they leave, each as (group, key, NAMELESS or
        BLANK).
        """
        found = [(0, BLANK)] * self._front.num
        for extent in self.waiting():
            keys = range(extent.key, extent.end) if extent.key >= 0 else [extent.key] * extent.num
            found.extend((extent.group, key) for key in reversed(keys))
        return found

    def numbers(self) -> list[int]:
        """The numbers of the free blocks, in the order in which they leave."""
        waiting = (block for extent in self.waiting() for block in reversed(extent.blocks))
        return [*self._front.numbers(), *waiting]
