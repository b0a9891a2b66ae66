"""The cached blocks of a pool by key, and the free ones in the order in which they are allocated.

The free queue is that of vLLM (v1/core/block_pool.py, 0.33). Blocks without a hash return to the
front and are allocated first. Cached blocks return to the back, so that the least recently used is
evicted first. The queue is a number of blank blocks, followed by extents of cached blocks. vLLM
0.11 returned all blocks to the back (`blank_first = False`). The cost of an operation grows with
the extents that it touches, not with their blocks.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from kvsim.memory.content_keys import KeyRuns
from kvsim.memory.paged.blocks import (
    BLANK,
    NAMELESS,
    NO_BLOCKS,
    NO_EXTENTS,
    NOTHING_FOUND,
    PROMPT,
    Extent,
    Found,
    Part,
)
from kvsim.memory.paged.eviction.policy import Eviction
from kvsim.memory.paged.free_queue import BlankBlocks, FreeQueue, RankedQueue
from kvsim.memory.paged.known import KnownContent
from kvsim.plumbing.errors import InvariantError


class Listener(Protocol):
    """Is notified when blocks get a first owner or lose the last one."""

    def taken(self, blocks: Sequence[int]) -> None:
        """Free blocks got an owner; their content, if any, is lost."""

    def revived(self, blocks: Sequence[int]) -> None:
        """Free blocks got an owner together with their cached content."""

    def freed(self, cached: Sequence[int], blank: Sequence[int]) -> None:
        """Blocks lost their last owner: `cached` keep their content, `blank` have none."""


class PoolContents:
    """The known content and the free blocks of a pool of `num_blocks` blocks, one of which is the
    null block. The content of a block is an integer key (see content_keys.py): equal keys mean
    equal content.

    tracked: blocks have numbers from 1 on; else blocks are counted, and every list of numbers is
    empty. singly: every extent is one block. blank_first: blank blocks return to the front.
    eviction: policy that chooses the cached block to evict; None: least recently used. listener: is
    notified of tracked blocks. on_evict: is called with the key of each evicted block. kept:
    numbers of cached blocks, by reason; PROMPT is not counted. version: changes when the result of
    a lookup could change. front, back: the free blocks without and, unless a policy ranks them,
    with content.
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
        self.version = 0
        self._known = [KnownContent(g) for g in range(num_groups)]
        self.tracked, self.singly = tracked, singly
        self.num_blocks, self.num_free = num_blocks, num_blocks - 1
        self.num_cached_free = self.num_evicted = 0
        self.kept = [0, 0, 0, 0]
        self.on_evict: Callable[[int], None] | None = None
        self.listener: Listener | None = None
        self.blank_first = blank_first or eviction is not None
        self._freed: list[int] = []  # not yet reported to the listener
        self._freed_blank: list[int] = []
        self.front = BlankBlocks(self.num_free, tracked=tracked)
        self._ranked = None if eviction is None else RankedQueue(eviction, num_groups)
        self.timed = eviction if eviction is not None and eviction.lapses else None
        self.back = FreeQueue()

    # --- looking up ----------------------------------------------------------------------------

    def find(self, group: int, runs: KeyRuns, start: int, end: int) -> Found:
        """The oldest blocks of a group that hold the keys from place `start` to `end`, up to the
        first key that no block holds.
        """
        num, before, parts = 0, 0, list[tuple[Extent, int]]()
        for first, count in runs.between(start, end):
            known, skipped = self._known[group].find(first, count, parts)
            if not num:
                before = skipped
            num += known
            if known < count:
                break
        return Found(num, before, parts) if num else NOTHING_FOUND

    def block_of(self, group: int, key: int) -> Extent | None:
        """The oldest block of a group of single blocks with this key."""
        found: list[tuple[Extent, int]] = []
        self._known[group].find(key, 1, found)
        if not found:
            return None
        extent = found[0][0]
        return extent if extent.of is None else extent.of

    def run_below(self, group: int, runs: KeyRuns, below: int, enough: int) -> tuple[int, int]:
        """See `KnownContent.run_below`."""
        return self._known[group].run_below(runs, below, enough)

    def has_duplicate_free(self, found: Found) -> bool:
        """Whether one of these blocks is free while a younger block holds the same content."""
        before = found.before
        for extent, num in found.parts:
            if not extent.owners:
                first = extent.key + before
                if self._known[extent.group].is_known_twice(first, num):
                    return True
            before = 0
        return False

    # --- what blocks hold ----------------------------------------------------------------------

    def register(
        self,
        group: int,
        parts: list[Part],
        place: int,
        first: int,
        count: int,
        blocks: list[int] = NO_BLOCKS,
    ) -> None:
        """Register `count` blocks of a table from `place` on under successive keys. parts: the
        table's blocks with keys, to which they are added. blocks: their numbers.
        """
        self.version += 1
        known = self._known[group]
        if parts:
            begin, last, num = parts[-1]
            alone = last.owners == 1 and last.after is None and begin + num == place
            if alone and last.end == first and known.extend(last, count):
                parts[-1] = begin, last, num + count
                if blocks:
                    last.blocks += blocks
                return
        at = 0
        for extent in known.add(first, count):
            extent.owners = 1
            if blocks:
                extent.blocks = blocks[at : at + extent.num]
                at += extent.num
            parts.append((place, extent, extent.num))
            place += extent.num

    def name(self, extent: Extent, key: int) -> None:
        """Add `key` to the keys of a single block."""
        if extent.key < 0:
            extent.key = key
            self._known[extent.group].hold(extent)
            if self._ranked is not None:
                self._ranked.registered(extent)
        elif extent.key != key and all(alias.key != key for alias in extent.aliases):
            alias = Extent(key, 1, extent.group)
            alias.of, extent.aliases = extent, [*extent.aliases, alias]
            self._known[extent.group].hold(alias)
        self.version += 1

    def forget(self, extent: Extent) -> list[int]:
        """Remove all keys of a single block; returns them."""
        if extent.key < 0:
            return NO_BLOCKS
        self.version += 1
        keys = [extent.key, *(alias.key for alias in extent.aliases)]
        for each in (extent, *extent.aliases):
            self._known[extent.group].forget(each, 1)
        extent.num, extent.key, extent.aliases = 1, NAMELESS, NO_EXTENTS
        extent.is_younger = False
        return keys

    # --- parts of tables -----------------------------------------------------------------------

    def _cut(self, part: Part, num: int) -> tuple[Part, Part]:
        """The first `num` blocks of a part, and the others."""
        self.version += 1
        place, head, count = part
        extent, left = head, num
        while extent.num < left:
            left -= extent.num
            after = extent.after
            assert after is not None
            extent = after
        if extent.num > left:
            self._known[extent.group].cut(extent, left)
        rest = extent.after
        assert rest is not None
        return (place, head, num), (place + num, rest, count - num)

    def cut_before(self, parts: list[Part], end: int) -> list[Part]:
        """Remove the blocks before position `end` from `parts`, and return them."""
        num = 0
        for place, _, count in parts:
            if place >= end:
                break
            num += 1
            if place + count > end:
                parts[num - 1 : num] = self._cut(parts[num - 1], end - place)
                break
        gone = parts[:num]
        del parts[:num]
        return gone

    def forget_part(self, part: Part) -> None:
        """The blocks of a part, which have no other owners, lose their keys."""
        self.version += 1
        _, head, num = part
        for extent in head.chain(num):
            self._known[extent.group].forget(extent, extent.num)

    # --- taking --------------------------------------------------------------------------------

    def take(self, count: int) -> list[int]:
        """Take `count` <= num_free blocks from the front of the queue; their content is evicted."""
        self.num_free -= count
        if self.num_free < 0:
            raise InvariantError(f"{count} blocks taken from {self.num_free + count} free ones")
        if not self.tracked and count <= self.front.num:
            self.front.num -= count
            return NO_BLOCKS
        left = max(0, count - self.front.num)
        blocks = self.front.take(count - left)
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
        back = self.back
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

    # --- the queue as it is --------------------------------------------------------------------

    def waiting(self) -> Iterable[Extent]:
        """The free extents after the blank blocks, in the order in which they are evicted."""
        return self.back if self._ranked is None else self._ranked

    def numbers(self) -> list[int]:
        """The numbers of the free blocks, in the order in which they leave."""
        waiting = (block for extent in self.waiting() for block in reversed(extent.blocks))
        return [*self.front.numbers(), *waiting]
