"""The pool of blocks, in extents: which blocks are free, in which order they leave, what they hold.

The free queue is that of vLLM (v1/core/block_pool.py, 0.33): blocks without known content return to
the front and leave first; blocks whose content may still be hit return to the back, so that the
least recently used leaves first. Blank blocks are a number of blocks in front, and behind them wait
extents. vLLM 0.11 returned all blocks to the back (`blank_first = False`). No operation costs more
than the extents that it touches, however many blocks these are.
"""

from collections.abc import Callable, Iterable, Sequence

from kvsim.memory.paged.blank_blocks import BlankBlocks
from kvsim.memory.paged.extent import BLANK, NAMELESS, NO_BLOCKS, Extent, FreeQueue
from kvsim.memory.paged.extent_content import ExtentContent
from kvsim.memory.paged.kept import PROMPT
from kvsim.memory.paged.listener import Listener
from kvsim.memory.paged.parts import Found, Part, extents_of, stretches
from kvsim.plumbing.errors import InvariantError


class ExtentPool(ExtentContent):
    """A pool of `num_blocks` blocks, one of them the null block, for so many groups of layers.

    tracked: blocks have numbers, from 1 on; else they are counted, and every list of numbers is
    empty. blank_first: blank blocks return to the front. listener: hears of tracked blocks.
    on_evict: is called with each key whose block is taken.
    """

    def __init__(
        self,
        num_blocks: int,
        num_groups: int,
        *,
        tracked: bool = False,
        blank_first: bool = True,
    ) -> None:
        super().__init__(num_blocks, num_groups, tracked=tracked)
        self.on_evict: Callable[[int], None] | None = None
        self.listener: Listener | None = None
        self.blank_first = blank_first
        self._freed: list[int] = []  # what the listener has yet to hear of
        self._freed_blank: list[int] = []
        self._front = BlankBlocks(self.num_free, tracked=tracked)
        self._back = FreeQueue()

    # --- the free queue ------------------------------------------------------------------------

    def take(self, count: int) -> list[int]:
        """`count` <= num_free blocks leave the front of the queue, their content is forgotten."""
        self.num_free -= count
        if self.num_free < 0:
            raise InvariantError(f"{count} blocks taken from {self.num_free + count} free ones")
        if not self.tracked and count <= self._front.num:
            self._front.num -= count
            return NO_BLOCKS
        left = max(0, count - self._front.num)
        blocks = self._front.take(count - left)
        if left:
            blocks = self._evict(left, blocks)
        if self.listener is not None:
            self.listener.taken(blocks)
        return blocks

    def _evict(self, count: int, blocks: list[int]) -> list[int]:
        """Take so many blocks out of the extents that wait, behind these from the front."""
        evicted, back, why_kept = 0, self._back, self.kept.nums
        while count:
            extent = back.first
            assert extent is not None
            num, key = extent.num, extent.key
            gone = count if count < num else num
            left = num - gone
            if key != BLANK:
                evicted += gone
                num_prompt = extent.num_prompt
                if num_prompt > left:
                    extent.num_prompt = left
                if extent.why != PROMPT:
                    why_kept[extent.why] -= num - num_prompt - left + extent.num_prompt
            if self.tracked:
                blocks.extend(reversed(extent.blocks[left:]))
                del extent.blocks[left:]
            if not left:
                back.remove(extent)
            if self.on_evict is not None and key >= 0:
                for name in range(key + num - 1, key + left - 1, -1):
                    self.on_evict(name)
            if key < 0:
                extent.num = left
            else:
                self._known[extent.group].forget(extent, gone)
                self.version += 1
            count -= gone
        self.num_cached_free -= evicted
        self.num_evicted += evicted
        return blocks

    def _count_kept(self, extent: Extent, sign: int) -> None:
        self.kept.count(extent.why, sign * (extent.num - extent.num_prompt))

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
        """A table returns blocks of one group of layers: those of `parts`; those at the places
        `nameless` behind these, whose known content has no key; and `num_blank` blocks that hold
        nothing. The content is kept for `why`, but for that before place `prompt_end`. blocks: the
        numbers of all of them, from place `start` on. Returns how many of the blocks other
        sequences still hold.
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

    def given_back(self) -> None:
        """A table has returned what it returns at once: the listener hears of it."""
        if self.listener is not None:
            self.listener.freed(self._freed, self._freed_blank)
            self._freed, self._freed_blank = [], []

    def _blank_of(
        self, blocks: list[int], start: int, parts: list[Part], nameless: Sequence[int]
    ) -> list[int]:
        """Of these blocks from place `start` on those that hold nothing."""
        if not self.tracked:
            return NO_BLOCKS
        blank: list[int] = []
        at = start
        for first, end in (*((p, p + num) for p, _, num in parts), *stretches(nameless)):
            blank += blocks[at - start : first - start]
            at = end
        return blank + blocks[at - start :]

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
        # Of an extent the last blocks go first: outputs, and then a prompt.
        in_order = last is not None and (num_prompt == count or not last.num_prompt)
        if in_order and last is not None and last.key == key and last.why == why:
            last.num += count
            last.num_prompt += num_prompt
            self.kept.count(why, count - num_prompt)
            return
        extent = Extent(key, count)
        extent.blocks = blocks
        extent.why, extent.num_prompt = why, num_prompt
        self._count_kept(extent, 1)
        self._back.append(extent)

    def _give_named(self, extent: Extent, why: int, num_prompt: int) -> None:
        """The last owner gives `extent` up; what lies behind it in its run may have come before."""
        extent.owners = 0
        extent.after = None
        extent.why, extent.num_prompt = why, min(num_prompt, extent.num)
        self._count_kept(extent, 1)
        last = self._back.last
        if (
            last is not None
            and last.key == extent.end
            and last.group == extent.group
            and not (last.is_younger or extent.is_younger)
            and (extent.num_prompt == extent.num or not last.num_prompt)
        ):
            self._back.remove(last)
            extent.num_prompt += last.num_prompt
            self._known[extent.group].join(extent, last)
        self._back.append(extent)

    # --- content -------------------------------------------------------------------------------

    def num_free_of(self, found: Found) -> int:
        """How many of these blocks wait in the free queue."""
        free = 0
        for extent, num in found.parts:
            if not extent.owners:
                free += num
        return free

    def share(self, found: Found, place: int, parts: list[Part]) -> int:
        """A table, whose `parts` of one group these become from `place` on, takes its hits over;
        free blocks leave the queue. Returns how many of the blocks other sequences hold as well.
        """
        in_use, before = 0, found.before
        revived: list[int] = []
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
                self._back.remove(extent)
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

    def free_queue(self) -> list[tuple[int, int]]:
        """The free blocks in the order in which they leave: of each its group and its key, or
        NAMELESS, or BLANK.
        """
        found = [(0, BLANK)] * self._front.num
        for extent in self._back:
            keys = range(extent.key, extent.end) if extent.key >= 0 else [extent.key] * extent.num
            found.extend((extent.group, key) for key in reversed(keys))
        return found

    def numbers(self) -> list[int]:
        """The numbers of the free blocks, in the order in which they leave."""
        waiting = (block for extent in self._back for block in reversed(extent.blocks))
        return [*self._front.numbers(), *waiting]

    def check(
        self, tables: Iterable[list[Part]], held: int, blocks: Iterable[list[int]] = ()
    ) -> None:
        """Raise InvariantError unless `held` blocks, as tables count them, and the free ones are
        all there are, and all content is held or waits. tables: the parts of each; blocks: the
        numbers of all blocks of each.
        """
        if self.tracked:
            free = self.numbers()
            both = {block for each in blocks for block in each}.union(free)
            if len(free) != self.num_free or both != set(range(1, self.num_blocks)):
                raise InvariantError(f"a block of {self.num_blocks} is lost, or free and held")
        owners: dict[Extent, int] = {}
        for parts in tables:
            for extent in extents_of(parts):
                owners[extent] = owners.get(extent, 0) + 1
        wrong = [extent.owners for extent, count in owners.items() if extent.owners != count]
        shared = sum((count - 1) * extent.num for extent, count in owners.items())
        if wrong or shared != self.num_shared:
            raise InvariantError(f"{shared} blocks shared, counted {self.num_shared}: {wrong}")
        content = [extent for extent in self._back if extent.key != BLANK]
        cached = sum(extent.num for extent in content)
        num_free = self._front.num + sum(extent.num for extent in self._back)
        if num_free != self.num_free or cached != self.num_cached_free:
            raise InvariantError(f"{num_free} free blocks, {cached} cached, miscounted")
        if any(extent.num < extent.num_prompt for extent in content):
            raise InvariantError("more blocks of a prompt than blocks")
        kept = [(extent.num - extent.num_prompt, extent.why) for extent in content]
        self.kept.check(set(), kept)
        if held - shared + num_free != self.num_blocks - 1:
            raise InvariantError(f"{held - shared} held + {num_free} free blocks")
        named = [extent for extent in content if extent.key >= 0]
        if any(extent.owners for extent in named) or any(map(owners.__contains__, named)):
            raise InvariantError("an extent is held and free")
        known = sum(content.check() for content in self._known)
        if known != sum(extent.num for extent in (*named, *owners)):
            raise InvariantError("what is known is not what is held or waits")
