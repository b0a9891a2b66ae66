"""The pool of blocks and their owners. Free blocks and known content are in its base classes."""

from collections.abc import Collection, Iterable, Sequence

from kvsim.memory.paged.block_queue import BlockQueue
from kvsim.memory.paged.blocks import (
    BLANK,
    NAMELESS,
    NO_BLOCKS,
    PROMPT,
    Extent,
    Found,
    Part,
    extents_of,
    runs_of,
)
from kvsim.memory.paged.session_hint import SessionHint
from kvsim.plumbing.errors import InvariantError


class BlockPool(BlockQueue):
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
        """A table frees blocks of one group of layers: those of `parts`, those with known content
        without keys at the places `nameless` behind, and `num_blank` blank ones. The content is
        cached for the reason `why`, before place `prompt_end` as PROMPT. blocks: the numbers of
        all, from place `start` on. Returns the number of blocks that other sequences still hold.
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
                    self._back.remove(extent)
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

    def check(
        self, tables: Iterable[list[Part]], held: int, blocks: Iterable[list[int]] = ()
    ) -> None:
        """Raise InvariantError unless `held` blocks, as counted by tables, and the free ones are
        all blocks, and all known content is in one of these. tables: parts of each table; blocks:
        block numbers of each table.
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
        waiting = list(self.waiting())
        content = [extent for extent in waiting if extent.key != BLANK]
        cached = sum(extent.num for extent in content)
        num_free = self._front.num + sum(extent.num for extent in waiting)
        if num_free != self.num_free or cached != self.num_cached_free:
            raise InvariantError(f"{num_free} free blocks, {cached} cached, miscounted")
        if any(extent.num < extent.num_prompt for extent in content):
            raise InvariantError("more blocks of a prompt than blocks")
        kept = [0, 0, 0, 0]
        for extent in content:
            if extent.why != PROMPT:
                kept[extent.why] += extent.num - extent.num_prompt
        if kept != self.kept:
            raise InvariantError(f"cached blocks by reason are {kept}, counted {self.kept}")
        if held - shared + num_free != self.num_blocks - 1:
            raise InvariantError(f"{held - shared} held + {num_free} free blocks")
        if any(extent.owners for extent in content) or any(map(owners.__contains__, content)):
            raise InvariantError("an extent is held and free")
        self._check_content((*content, *owners))
