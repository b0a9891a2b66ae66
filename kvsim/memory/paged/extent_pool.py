"""The pool of blocks, in extents: which blocks are free, in which order they leave, what they hold.

The free queue is that of vLLM (v1/core/block_pool.py, 0.33): blocks without known content return to
the front and leave first; blocks whose content may still be hit return to the back, so that the
least recently used leaves first. Blank blocks are a number of blocks in front, and behind them wait
extents. vLLM 0.11 returned all blocks to the back (`blank_first = False`). No operation costs more
than the extents that it touches, however many blocks these are.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.extent import BLANK, NAMELESS, Extent, FreeQueue
from kvsim.memory.paged.known import KnownContent
from kvsim.memory.paged.pool import Pool
from kvsim.plumbing.errors import InvariantError


class Found(NamedTuple):
    """Successive blocks of one group of layers that hold known content. num: how many blocks.
    before: blocks of the first extent that lie before them. parts: the extents, and how many of the
    blocks lie in each.
    """

    num: int
    before: int
    parts: list[tuple[Extent, int]]


# Blocks with keys in a table: the position of the first of them, an extent, and how many blocks,
# from the beginning of the extent on, in what was cut off behind it too.
Part = tuple[int, Extent, int]
NOTHING_FOUND = Found(0, 0, [])


class ExtentPool(Pool):
    """A pool of `num_blocks` blocks, one of them the null block, for so many groups of layers.

    blank_first: blank blocks return to the front.
    """

    def __init__(self, num_blocks: int, num_groups: int, *, blank_first: bool = True) -> None:
        super().__init__(num_blocks)
        self._blank_first = blank_first
        self._front = self.num_free  # blank blocks before all others
        self._back = FreeQueue()
        self._known = [KnownContent(g) for g in range(num_groups)]

    # --- the free queue ------------------------------------------------------------------------

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
        evicted = 0
        while count:
            extent = self._back.first
            assert extent is not None
            gone = min(extent.num, count)
            if extent.key != BLANK:
                evicted += gone
                self._count_kept(extent, -1)
                extent.num_prompt = min(extent.num_prompt, extent.num - gone)
            if gone == extent.num:
                self._back.remove(extent)
            if extent.key < 0:
                extent.num -= gone
            else:
                self._known[extent.group].forget(extent, gone)
                self.version += 1
            if extent.key != BLANK:
                self._count_kept(extent, 1)
            count -= gone
        self.num_cached_free -= evicted
        self.num_evicted += evicted

    def _count_kept(self, extent: Extent, sign: int) -> None:
        self.kept.count(extent.why, sign * (extent.num - extent.num_prompt))

    def give_back(
        self,
        parts: list[Part],
        why: int,
        prompt_end: int,
        nameless: Sequence[int],
        num_blank: int,
    ) -> int:
        """A table returns blocks of one group of layers: those of `parts`; those at the places
        `nameless` behind these, whose known content has no key; and `num_blank` blocks that hold
        nothing. The content is kept for `why`, but for that before place `prompt_end`. Returns how
        many of the blocks other sequences still hold.
        """
        if num_blank:
            self._give_blank(num_blank)
        if nameless:
            num_prompt = 0
            if prompt_end > nameless[0]:  # full attention keeps all in a row
                num_prompt = min(len(nameless), prompt_end - nameless[0])
            self._give_nameless(NAMELESS, len(nameless), why, num_prompt)
            self.num_cached_free += len(nameless)
        shared = 0
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
                        self._give_named(extent, why, max(prompt_end - end, 0))
            self.num_shared -= shared
            self.num_free += num_named - shared
            self.num_cached_free += num_named - shared
            self.version += 1
        return shared

    def _give_blank(self, count: int) -> None:
        if self._blank_first:
            self._front += count
            self.num_free += count
        else:
            self._give_nameless(BLANK, count, 0, count)

    def _give_nameless(self, key: int, count: int, why: int, num_prompt: int) -> None:
        self.num_free += count
        last = self._back.last
        # Of an extent the last blocks go first: outputs, and then a prompt.
        in_order = last is not None and (num_prompt == count or not last.num_prompt)
        if in_order and last is not None and last.key == key and last.why == why:
            last.num += count
            last.num_prompt += num_prompt
            self.kept.count(why, count - num_prompt)
            return
        extent = Extent(key, count)
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

    def stretch_below(self, group: int, runs: KeyRuns, below: int, enough: int) -> tuple[int, int]:
        """See `KnownContent.stretch_below`."""
        return self._known[group].stretch_below(runs, below, enough)

    def num_free_of(self, found: Found) -> int:
        """How many of these blocks wait in the free queue."""
        free = 0
        for extent, num in found.parts:
            if not extent.owners:
                free += num
        return free

    def has_duplicate_free(self, found: Found) -> bool:
        """Whether some of these blocks are free while younger blocks hold the same."""
        before = found.before
        for extent, num in found.parts:
            if not extent.owners:
                first = extent.key + before
                if self._known[extent.group].is_known_twice(first, num):
                    return True
            before = 0
        return False

    def share(self, found: Found, place: int, parts: list[Part]) -> int:
        """A table, whose `parts` of one group these become from `place` on, takes its hits over;
        free blocks leave the queue. Returns how many of the blocks other sequences hold as well.
        """
        in_use, before = 0, found.before
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
            extent.owners += 1
            parts.append((place, extent, num))
            place += num
        self.num_shared += in_use
        return in_use

    def register(self, group: int, parts: list[Part], place: int, first: int, count: int) -> None:
        """So many blocks of a table from `place` on hold content with successive keys from now on.
        parts: those of the table that have keys, to which they are added.
        """
        self.version += 1
        known = self._known[group]
        if parts:
            begin, last, num = parts[-1]
            alone = last.owners == 1 and last.after is None and begin + num == place
            if alone and last.end == first and known.extend(last, count):
                parts[-1] = begin, last, num + count
                return
        for extent in known.add(first, count):
            extent.owners = 1
            parts.append((place, extent, extent.num))
            place += extent.num

    def cut(self, part: Part, num: int) -> tuple[Part, Part]:
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

    def forget(self, part: Part) -> None:
        """The blocks of a part, which nobody else holds, have no keys any more."""
        self.version += 1
        _, head, num = part
        for extent in head.chain(num):
            self._known[extent.group].forget(extent, extent.num)

    def num_leading_shared(self, parts: list[Part]) -> int:
        """How many blocks, up to the first without, have several owners."""
        num = 0
        for _, head, count in parts:
            for extent in head.chain(count):
                if extent.owners == 1:
                    return num
                num += extent.num
        return num

    def free_queue(self) -> list[tuple[int, int]]:
        """The free blocks in the order in which they leave: of each its group and its key, or
        NAMELESS, or BLANK.
        """
        found = [(0, BLANK)] * self._front
        for extent in self._back:
            keys = range(extent.key, extent.end) if extent.key >= 0 else [extent.key] * extent.num
            found.extend((extent.group, key) for key in reversed(keys))
        return found

    def check(self, tables: Iterable[list[Part]], held: int) -> None:
        """Raise InvariantError unless `held` blocks, as tables count them, and the free ones are
        all there are, and all content is held or waits. tables: the parts of each.
        """
        owners: dict[Extent, int] = {}
        for parts in tables:
            for _, head, num in parts:
                for extent in head.chain(num):
                    owners[extent] = owners.get(extent, 0) + 1
        wrong = [extent.owners for extent, count in owners.items() if extent.owners != count]
        shared = sum((count - 1) * extent.num for extent, count in owners.items())
        if wrong or shared != self.num_shared:
            raise InvariantError(f"{shared} blocks shared, counted {self.num_shared}: {wrong}")
        content = [extent for extent in self._back if extent.key != BLANK]
        cached = sum(extent.num for extent in content)
        free = self._front + sum(extent.num for extent in self._back)
        if free != self.num_free or cached != self.num_cached_free:
            raise InvariantError(f"{free} free blocks, {cached} cached, miscounted")
        if any(extent.num < extent.num_prompt for extent in content):
            raise InvariantError("more blocks of a prompt than blocks")
        kept = [(extent.num - extent.num_prompt, extent.why) for extent in content]
        self.kept.check(set(), kept)
        if held - shared + free != self.num_blocks - 1:
            raise InvariantError(f"{held - shared} held + {free} free of {self.num_blocks} blocks")
        named = [extent for extent in content if extent.key >= 0]
        if any(extent.owners for extent in named) or any(map(owners.__contains__, named)):
            raise InvariantError("an extent is held and free")
        known = sum(content.check() for content in self._known)
        if known != sum(extent.num for extent in (*named, *owners)):
            raise InvariantError("what is known is not what is held or waits")
