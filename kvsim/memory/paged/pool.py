"""The pool of blocks: owners, cached content by key, and the free blocks in order of allocation.

The free queue is that of vLLM (v1/core/block_pool.py, 0.33). Blocks without a hash return to the
front and are allocated first. Cached blocks return to the back, so that the least recently used is
evicted first. The queue is a number of blank blocks, followed by extents of cached blocks. vLLM
0.11 returned all blocks to the back (`blank_first = False`). The cost of an operation grows with
the number of extents that it touches, not of blocks.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from kvsim.memory.content_keys import KeyRuns
from kvsim.memory.paged.block_index import KnownContent
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
    runs_of,
)
from kvsim.memory.paged.eviction.policy import Eviction
from kvsim.memory.paged.free_queue import BlankBlocks, FreeQueue, RankedQueue
from kvsim.memory.paged.session_hint import SessionHint
from kvsim.plumbing.errors import InvariantError
from kvsim.vllm.rules import FIRST_BLOCK


class Listener(Protocol):
    """Is notified when blocks get a first owner or lose the last one. Arguments are block
    numbers.
    """

    def taken(self, blocks: Sequence[int]) -> None:
        """Free blocks were allocated; any cached content was evicted."""

    def revived(self, blocks: Sequence[int]) -> None:
        """Cached free blocks were hit: they got an owner and keep their content."""

    def freed(self, cached: Sequence[int], blank: Sequence[int]) -> None:
        """Blocks lost their last owner: `cached` keep their content, `blank` have none."""


class BlockPool:
    """A pool of `num_blocks` blocks for groups of layers; one of them is the null block. The
    content of a block is an integer key (see content_keys.py): equal keys mean equal content.

    tracked: blocks have numbers, from FIRST_BLOCK on; else blocks are counted, and every list of
    numbers is empty. singly: every extent is one block. blank_first: blank blocks return to the
    front. eviction: policy that chooses the cached block to evict; None: least recently used.
    listener: is notified of tracked blocks. on_evict: is called with the key of each evicted block.
    kept: number of free cached blocks by the reason for which they are cached; PROMPT is not
    counted. version: changes when the result of a lookup could change. front, back: the free blocks
    without and, unless a policy ranks them, with content. num_shared: owners beyond the first,
    summed over all blocks. numbered: the extent that each single block was last allocated to, by
    block number; None: not recorded.
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
        self.numbered: dict[int, Extent] | None = None
        self._known = [KnownContent(g) for g in range(num_groups)]
        self.tracked, self.singly = tracked, singly
        self.num_blocks, self.num_free = num_blocks, num_blocks - FIRST_BLOCK
        self.num_cached_free = self.num_evicted = self.num_shared = 0
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
        """The oldest blocks of a group that cache the keys from index `start` to `end`, up to the
        first miss.
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
        """The oldest block with this key, in a group that stores blocks one by one; None without
        one.
        """
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
        """Whether one of these blocks is free while a younger block caches the same content."""
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
        """Register `count` blocks of a table, from position `place` on, under successive keys.
        parts: the table's blocks with keys, to which the blocks are added. blocks: their numbers.
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
        """Register a single block under `key`, in addition to its other keys."""
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
        """Split a part of a table: (its first `num` blocks, the others)."""
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
        """Remove the keys of the blocks of a part, which have no other owners."""
        self.version += 1
        _, head, num = part
        for extent in head.chain(num):
            self._known[extent.group].forget(extent, extent.num)

    # --- taking --------------------------------------------------------------------------------

    def take(self, count: int) -> list[int]:
        """Allocate `count` <= num_free blocks from the front of the queue, evicting cached content;
        returns block numbers.
        """
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
        """Evict `count` blocks from the free cached extents; append their numbers to `blocks`."""
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

    def deal(self, group: int, blocks: list[int], count: int) -> list[Extent]:
        """Turn `count` newly allocated blocks into single extents with one owner each. blocks:
        their numbers.
        """
        dealt = []
        for index in range(count):
            extent = Extent(NAMELESS, 1, group)
            extent.owners = 1
            if blocks:
                extent.blocks = blocks[index : index + 1]
                if self.numbered is not None:
                    self.numbered[blocks[index]] = extent
            dealt.append(extent)
        return dealt

    # --- giving back ---------------------------------------------------------------------------

    def give_back(
        self,
        parts: list[Part],
        why: int,
        prompt_end: int,
        nameless: Sequence[int],
        num_blank: int,
        blocks: list[int] = NO_BLOCKS,
        start: int = 0,
    ) -> int:
        """Free blocks of one group of layers: first `parts`, then blocks of cached content without
        keys at positions `nameless`, then `num_blank` blank blocks.

        The content counts as cached for the reason `why`, before position `prompt_end` as PROMPT.
        blocks: numbers of all these blocks, from position `start` on. Returns the number of blocks
        that other sequences still hold.
        """
        blank = self._blank_of(blocks, start, parts, nameless) if num_blank else NO_BLOCKS
        if num_blank:
            self._give_blank(num_blank, blank)
        kept = NO_BLOCKS
        if nameless:
            num_prompt = 0
            if prompt_end > nameless[0]:  # full attention keeps all in a row
                num_prompt = min(len(nameless), prompt_end - nameless[0])
            if self.tracked:
                kept = [blocks[place - start] for place in nameless]
            self._give_nameless(NAMELESS, len(nameless), why, num_prompt, kept)
            self.num_cached_free += len(nameless)
        shared = 0
        freed: list[list[int]] = []
        if parts:
            num_named = 0
            for place, head, num in reversed(parts):
                end = place + num
                num_named += num
                for extent in reversed(head.chain(num)):
                    end -= extent.num
                    if extent.owners > 1:
                        extent.owners -= 1
                        shared += extent.num
                    else:
                        if self.tracked:
                            freed.append(extent.blocks.copy())
                        self._give_named(extent, why, max(prompt_end - end, 0))
            self.num_shared -= shared
            self.num_free += num_named - shared
            self.num_cached_free += num_named - shared
            self.version += 1
        if self.listener is not None:
            self._freed += [block for each in reversed(freed) for block in each] + kept
            self._freed_blank += blank
        return shared

    def give_back_singly(
        self,
        parts: list[Part],
        why: int,
        prompt_end: int,
        nameless: Collection[int],
        *,
        hint: SessionHint,
    ) -> int:
        """`give_back` for single blocks: a block with a key, or at a position in `nameless`, stays
        cached. hint: the session of the table's request.
        """
        ranked, shared = self._ranked, 0
        if ranked is not None:
            ranked.returning(
                [part for part in parts if part[1].key >= 0 or part[0] in nameless], hint=hint
            )
        cached: list[Extent] = []
        blank: list[int] = []
        for place, extent, _ in reversed(parts):
            if extent.owners > 1:
                extent.owners -= 1
                shared += 1
                continue
            if extent.key < 0 and place not in nameless:
                blank += extent.blocks
                if self.blank_first and not self.tracked:
                    self._give_blank(1, NO_BLOCKS)
                elif not self.blank_first:
                    self._give_blank(1, extent.blocks)
                continue
            cached.append(extent)
            if ranked is None:
                self._give_named(extent, why, int(place < prompt_end))
            else:
                extent.owners, extent.why = 0, why
                extent.num_prompt = int(place < prompt_end)
                self._count_kept(extent, 1)
        if ranked is not None:
            ranked.put(cached)
        blank.reverse()
        if blank and self.blank_first:
            self._give_blank(len(blank), blank)
        self.num_shared -= shared
        self.num_free += len(cached)
        self.num_cached_free += len(cached)
        self.version += 1
        if self.listener is not None:
            self._freed += [block for extent in reversed(cached) for block in extent.blocks]
            self._freed_blank += blank
        return shared

    def _blank_of(
        self, blocks: list[int], start: int, parts: list[Part], nameless: Sequence[int]
    ) -> list[int]:
        """Numbers of the blocks without content among `blocks`, which begin at position `start`."""
        if not self.tracked:
            return NO_BLOCKS
        blank: list[int] = []
        at = start
        for first, end in (*((p, p + num) for p, _, num in parts), *runs_of(nameless)):
            blank += blocks[at - start : first - start]
            at = end
        return blank + blocks[at - start :]

    def _count_kept(self, extent: Extent, sign: int) -> None:
        if extent.why != PROMPT:
            self.kept[extent.why] += sign * (extent.num - extent.num_prompt)

    def given_back(self) -> None:
        """Notify the listener after a table has freed a set of blocks."""
        if self.listener is not None:
            self.listener.freed(self._freed, self._freed_blank)
            self._freed, self._freed_blank = [], []

    def _give_blank(self, count: int, blocks: list[int]) -> None:
        if self.blank_first:
            self.front.give(count, blocks)
            self.num_free += count
        else:
            self._give_nameless(BLANK, count, 0, count, blocks)

    def _give_nameless(
        self, key: int, count: int, why: int, num_prompt: int, blocks: list[int]
    ) -> None:
        self.num_free += count
        last = None if self.tracked else self.back.last
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
        self.back.append(extent)

    def _give_named(self, extent: Extent, why: int, num_prompt: int) -> None:
        """Free `extent`, which has no other owners; later blocks of its run may be free already."""
        extent.owners = 0
        extent.after = None
        extent.why, extent.num_prompt = why, min(num_prompt, extent.num)
        self._count_kept(extent, 1)
        last = self.back.last
        if (
            last is not None
            and last.key == extent.end
            and last.group == extent.group
            and not (self.singly or last.is_younger or extent.is_younger)
            and (extent.num_prompt == extent.num or not last.num_prompt)
        ):
            self.back.remove(last)
            extent.num_prompt += last.num_prompt
            self._known[extent.group].join(extent, last)
        self.back.append(extent)

    # --- sharing -------------------------------------------------------------------------------

    def num_free_of(self, found: Found) -> int:
        """Number of these blocks in the free queue."""
        free = 0
        for extent, num in found.parts:
            if not extent.owners:
                free += num
        return free

    def share(self, found: Found, place: int, parts: list[Part]) -> int:
        """A table takes over the hits `found` of one group from position `place` on, appended to
        its `parts`; free blocks leave the queue. Returns the number of blocks that other sequences
        also hold.
        """
        in_use, before, ranked = 0, found.before, self._ranked
        revived: list[int] = []
        if ranked is not None:
            ranked.found(found)
        for each, num in found.parts:
            extent = each
            if before:
                extent, before = self._known[extent.group].cut(extent, before), 0
                self.version += 1
            if extent.num > num:
                self._known[extent.group].cut(extent, num)
                self.version += 1
            if extent.owners:
                in_use += num
            else:
                if ranked is None:
                    self.back.remove(extent)
                else:
                    ranked.remove(extent)
                self.num_free -= num
                self.num_cached_free -= num
                self._count_kept(extent, -1)
                revived += extent.blocks
            extent.owners += 1
            parts.append((place, extent, num))
            place += num
        self.num_shared += in_use
        if self.listener is not None:
            self.listener.revived(revived)
        return in_use

    def drop(self, extent: Extent) -> None:
        """Decrement the reference count of a block with several owners."""
        extent.owners -= 1
        self.num_shared -= 1

    # --- the queue as it is --------------------------------------------------------------------

    def waiting(self) -> Iterable[Extent]:
        """The free cached extents, in the order in which they are evicted."""
        return self.back if self._ranked is None else self._ranked

    def numbers(self) -> list[int]:
        """The numbers of the free blocks, in the order in which they would be allocated."""
        waiting = (block for extent in self.waiting() for block in reversed(extent.blocks))
        return [*self.front.numbers(), *waiting]
