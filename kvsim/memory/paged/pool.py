"""The pool of blocks and their owners. Free blocks and known content are in its base class."""

from collections.abc import Collection, Sequence

from kvsim.memory.paged.blocks import (
    BLANK,
    NAMELESS,
    NO_BLOCKS,
    PROMPT,
    Extent,
    Found,
    Part,
    runs_of,
)
from kvsim.memory.paged.pool_contents import PoolContents
from kvsim.memory.paged.session_hint import SessionHint


class BlockPool(PoolContents):
    """A pool for groups of layers. num_shared: owners beyond the first, summed over all blocks."""

    num_shared = 0

    def deal(self, group: int, blocks: list[int], count: int) -> list[Extent]:
        """`count` taken blocks as single extents with one owner each. blocks: their numbers."""
        dealt = []
        for index in range(count):
            extent = Extent(NAMELESS, 1, group)
            extent.owners = 1
            if blocks:
                extent.blocks = blocks[index : index + 1]
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
        """Free blocks of one group of layers: those of `parts`, then those with content without
        keys at the places `nameless`, and `num_blank` blank ones.

        The content is cached for the reason `why`, before place `prompt_end` as PROMPT. blocks: the
        numbers of all, from place `start` on. Returns the number of blocks that other sequences
        still hold.
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
        """`give_back` for single blocks: those with keys or at a place in `nameless` are cached.
        hint: the session of the table's request.
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
        """The blank ones of these blocks from place `start` on."""
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
        """A table has returned a set of blocks: notify the listener."""
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
        """The last owner frees `extent`; later blocks of its run may be free already."""
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
        """A table takes over the hits `found` of one group from `place` on, appended to its
        `parts`; free blocks leave the queue. Returns the number of blocks that other sequences hold
        as well.
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
        """One of several owners frees a block."""
        extent.owners -= 1
        self.num_shared -= 1
