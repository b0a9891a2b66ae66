"""Free blocks in the order of allocation: blank blocks first, then cached extents in the order of
their freeing or of an eviction policy.
"""

from collections.abc import Iterator, Sequence

from kvsim.memory.paged.blocks import BLANK, NO_BLOCKS, Extent, Found, Part
from kvsim.memory.paged.eviction.policy import Eviction
from kvsim.memory.paged.session_hint import SessionHint
from kvsim.vllm.rules import FIRST_BLOCK


class BlankBlocks:
    """Free blocks without content: a stack of blocks that were in use, followed by blocks never
    used.

    num: number of blocks. tracked: whether blocks have numbers, from FIRST_BLOCK on.
    """

    def __init__(self, num: int, *, tracked: bool) -> None:
        self.num = num
        self._tracked = tracked
        self._used: list[int] = []
        self._fresh = FIRST_BLOCK  # the first never used block
        self._place: int | None = None  # in `_used`, where blocks are put; None: at its end

    def take(self, count: int) -> list[int]:
        """Take `count` <= num blocks; the block freed last is taken first."""
        self.num -= count
        if not self._tracked:
            return NO_BLOCKS
        used, left = self._used, len(self._used) - count
        if left >= 0:
            blocks = used[left:]
            blocks.reverse()
            del used[left:]
            return blocks
        blocks = used[::-1]
        used.clear()
        blocks.extend(range(self._fresh, self._fresh - left))
        self._fresh -= left
        return blocks

    def give(self, count: int, blocks: list[int]) -> None:
        """Free `count` blocks of a table, in table order."""
        self.num += count
        if self._tracked:
            place = len(self._used) if self._place is None else self._place
            self._used[place:place] = blocks

    def put_later_below(self, *, below: bool) -> None:
        """Change the order of reuse of blocks that are freed after this call: those freed first are
        allocated first. below = False restores the default, by which the block freed last is
        allocated first.
        """
        self._place = len(self._used) if below else None

    def numbers(self) -> list[int]:
        """The numbers of the blocks, in the order in which they would be allocated."""
        fresh = self.num - len(self._used) if self._tracked else 0
        return [*reversed(self._used), *range(self._fresh, self._fresh + fresh)]


class FreeQueue:
    """Cached free extents in eviction order; within an extent the last block is evicted first."""

    def __init__(self) -> None:
        # A sentinel extent before the first and behind the last.
        self._ring = ring = Extent(BLANK, 0)
        ring.sooner = ring.later = ring

    def __iter__(self) -> Iterator[Extent]:
        extent = self.first
        while extent is not None:
            yield extent
            extent = None if extent.later is self._ring else extent.later

    @property
    def first(self) -> Extent | None:
        """The extent to evict next."""
        first = self._ring.later
        return None if first is self._ring else first

    @property
    def last(self) -> Extent | None:
        """The extent added last."""
        last = self._ring.sooner
        return None if last is self._ring else last

    def behind(self, extent: Extent) -> Extent | None:
        """The extent after `extent` in eviction order."""
        later = extent.later
        return None if later is self._ring else later

    def block(self, number: int) -> Extent | None:
        """The single-block extent with this block number; None: not in the queue."""
        return next((each for each in self if each.blocks[0] == number), None)

    def after(self, extent: Extent | None, most: int) -> list[Extent]:
        """At most `most` extents after `extent` in eviction order; None: from the first on."""
        found: list[Extent] = []
        each = self.first if extent is None else self.behind(extent)
        while each is not None and len(found) < most:
            found.append(each)
            each = self.behind(each)
        return found

    def append(self, extent: Extent) -> None:
        """Append an extent to the queue."""
        ring = self._ring
        last = ring.sooner
        assert last is not None
        last.later = ring.sooner = extent
        extent.sooner, extent.later = last, ring

    def remove(self, extent: Extent) -> None:
        """Remove an extent."""
        sooner, later = extent.sooner, extent.later
        assert sooner is not None
        assert later is not None
        sooner.later, later.sooner = later, sooner
        extent.sooner = extent.later = None


class RankedQueue:
    """Extents of one block in the order of an eviction policy. The policy is called with block
    numbers, and with content keys that include the group of layers.
    """

    def __init__(self, order: Eviction, num_groups: int) -> None:
        self._order, self._num_groups = order, num_groups
        self._extents: dict[int, Extent] = {}  # waiting extents by block number

    def __iter__(self) -> Iterator[Extent]:
        return (self._extents[block] for block in self._order)

    def take(self, count: int) -> list[Extent]:
        """Take `count` extents, evicting their content."""
        leaving = [self._extents.pop(self._order.popitem(last=False)[0]) for _ in range(count)]
        for extent in leaving:
            self._order.forgotten(extent.blocks[0], self._name(extent))
        return leaving

    def put(self, extents: Sequence[Extent]) -> None:
        """Add `extents` that one table frees, its end first."""
        returned = {extent.blocks[0]: extent for extent in extents}
        self._extents.update(returned)
        self._order.update(dict.fromkeys(returned))

    def remove(self, extent: Extent) -> None:
        """Remove an extent that a sequence has hit."""
        (block,) = extent.blocks
        del self._order[block], self._extents[block]

    def _name(self, extent: Extent) -> int | None:
        return None if extent.key < 0 else extent.key * self._num_groups + extent.group

    # --- what the policy hears -----------------------------------------------------------------

    def registered(self, extent: Extent) -> None:
        """Tell the policy that a block in use is now cached under its key."""
        name = self._name(extent)
        assert name is not None
        self._order.registered(extent.blocks[0], name)

    def found(self, found: Found) -> None:
        """Tell the policy that one more sequence has hit these blocks."""
        for extent, _ in found.parts:
            self._order.found(extent.blocks[0])

    def returning(self, parts: Sequence[Part], *, hint: SessionHint) -> None:
        """Tell the policy that a table is about to free these blocks, first to last."""
        blocks = [extent.blocks[0] for _, extent, _ in parts]
        self._order.returning(blocks, [place for place, _, _ in parts], hint=hint)
