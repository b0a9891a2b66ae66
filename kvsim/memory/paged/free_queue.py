"""Free blocks in the order in which they leave: blank ones in front, and behind them extents in the
order of their return, or of an eviction policy.
"""

from collections.abc import Iterator, Sequence

from kvsim.memory.paged.eviction.policy import Eviction
from kvsim.memory.paged.extent import BLANK, NO_BLOCKS, Extent, Found, Part
from kvsim.memory.paged.session_hint import SessionHint


class BlankBlocks:
    """A stack of blocks that were in use, and behind them those that never were. num: how many
    there are. tracked: they have numbers, from 1 on.
    """

    def __init__(self, num: int, *, tracked: bool) -> None:
        self.num = num
        self._tracked = tracked
        self._used: list[int] = []
        self._fresh = 1  # the first block that never was in use

    def take(self, count: int) -> list[int]:
        """`count` <= num blocks leave: who came back last leaves first."""
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
        """So many blocks come back, those of a table in their order."""
        self.num += count
        if self._tracked:
            self._used += blocks

    def numbers(self) -> list[int]:
        """The numbers of the blocks, in the order in which they leave."""
        fresh = self.num - len(self._used) if self._tracked else 0
        return [*reversed(self._used), *range(self._fresh, self._fresh + fresh)]


class FreeQueue:
    """Extents in the order in which they leave; of an extent the last block leaves first."""

    def __init__(self) -> None:
        # An extent that never leaves stands before the first and behind the last.
        self._ring = ring = Extent(BLANK, 0)
        ring.sooner = ring.later = ring

    def __iter__(self) -> Iterator[Extent]:
        extent = self.first
        while extent is not None:
            yield extent
            extent = None if extent.later is self._ring else extent.later

    @property
    def first(self) -> Extent | None:
        """The extent that leaves next."""
        first = self._ring.later
        return None if first is self._ring else first

    @property
    def last(self) -> Extent | None:
        """The extent that came last."""
        last = self._ring.sooner
        return None if last is self._ring else last

    def behind(self, extent: Extent) -> Extent | None:
        """The extent that leaves after this one."""
        later = extent.later
        return None if later is self._ring else later

    def append(self, extent: Extent) -> None:
        """Put an extent behind all others."""
        ring = self._ring
        last = ring.sooner
        assert last is not None
        last.later = ring.sooner = extent
        extent.sooner, extent.later = last, ring

    def remove(self, extent: Extent) -> None:
        """Take an extent out."""
        sooner, later = extent.sooner, extent.later
        assert sooner is not None
        assert later is not None
        sooner.later, later.sooner = later, sooner
        extent.sooner = extent.later = None


class RankedQueue:
    """Extents of one block, of which the policy says who leaves next. It hears of blocks by their
    numbers, and of content by names that tell groups of layers apart.
    """

    def __init__(self, order: Eviction, num_groups: int) -> None:
        self._order, self._num_groups = order, num_groups
        self._extents: dict[int, Extent] = {}  # those that wait, by their numbers

    def __iter__(self) -> Iterator[Extent]:
        return (self._extents[block] for block in self._order)

    def take(self, count: int) -> list[Extent]:
        """So many that leave now, their content given up."""
        leaving = [self._extents.pop(self._order.popitem(last=False)[0]) for _ in range(count)]
        for extent in leaving:
            self._order.forgotten(extent.blocks[0], self._name(extent))
        return leaving

    def put(self, extents: Sequence[Extent]) -> None:
        """These come back from one table, the end of it first."""
        returned = {extent.blocks[0]: extent for extent in extents}
        self._extents.update(returned)
        self._order.update(dict.fromkeys(returned))

    def remove(self, extent: Extent) -> None:
        """Somebody has found one that waits."""
        (block,) = extent.blocks
        del self._order[block], self._extents[block]

    def _name(self, extent: Extent) -> int | None:
        return None if extent.key < 0 else extent.key * self._num_groups + extent.group

    # --- what the policy hears -----------------------------------------------------------------

    def registered(self, extent: Extent) -> None:
        """A block in use holds the content of its key from now on."""
        name = self._name(extent)
        assert name is not None
        self._order.registered(extent.blocks[0], name)

    def found(self, found: Found) -> None:
        """One more sequence has found these."""
        for extent, _ in found.parts:
            self._order.found(extent.blocks[0])

    def returning(self, parts: Sequence[Part], *, hint: SessionHint) -> None:
        """A table gives these back, first to last."""
        blocks = [extent.blocks[0] for _, extent, _ in parts]
        self._order.returning(blocks, [place for place, _, _ in parts], hint=hint)
