"""Extents: successive blocks of one group of layers that share owners, and the ring in which those
without an owner wait to be allocated.
"""

from collections.abc import Iterator

from kvsim.plumbing.errors import InvariantError

NAMELESS = -1  # content that no request can look up
BLANK = -2  # no content
NO_BLOCKS: list[int] = []  # the numbers of blocks that are not tracked; never changed


class Extent:
    """Successive blocks that the same sequences hold, or that wait together in the free queue.

    key: content key of the first block, where the blocks behind it have the keys that follow; or
    NAMELESS, or BLANK. num: number of blocks. group: the group of layers, whose keys these are.
    blocks: the numbers of the blocks, where a pool tracks them.
    owners: number of sequences that hold the blocks; 0: the blocks are free. is_younger: older
    blocks are found by these keys. after: the extent that was cut off behind this one while
    sequences held both. why: what the free blocks are cached for (see kept.py), but for the first
    num_prompt, which lay in the prompt of their last owner.
    """

    __slots__ = (
        "after",
        "blocks",
        "group",
        "is_younger",
        "key",
        "later",
        "num",
        "num_prompt",
        "owners",
        "sooner",
        "why",
    )

    def __init__(self, key: int, num: int, group: int = 0) -> None:
        self.key = key
        self.num = num
        self.group = group
        self.blocks: list[int] = NO_BLOCKS
        self.why = 0
        self.num_prompt = 0
        self.owners = 0
        self.is_younger = False
        self.after: Extent | None = None
        self.sooner: Extent | None = None  # the extent that leaves the queue just before this one
        self.later: Extent | None = None

    @property
    def end(self) -> int:
        """The key behind that of the last block."""
        return self.key + self.num

    def cut(self, num: int) -> "Extent":
        """Keep the first `num` blocks; the others are returned as an extent, which leaves the queue
        just before this one, or has the same owners.
        """
        rest = Extent(self.key + num, self.num - num, self.group)
        self.num = num
        if self.blocks:
            rest.blocks = self.blocks[num:]
            del self.blocks[num:]
        if self.num_prompt > num:
            rest.num_prompt, self.num_prompt = self.num_prompt - num, num
        rest.why, rest.owners, rest.is_younger = self.why, self.owners, self.is_younger
        if self.owners:
            rest.after, self.after = self.after, rest
        sooner = self.sooner
        if sooner is not None:
            sooner.later = self.sooner = rest
            rest.sooner, rest.later = sooner, self
        return rest

    def chain(self, num: int) -> list["Extent"]:
        """The extents of the first `num` blocks from here on, in what was cut off behind too."""
        found = [self]
        extent, left = self, num - self.num
        while left > 0:
            after = extent.after
            assert after is not None
            extent = after
            found.append(extent)
            left -= extent.num
        if left:
            raise InvariantError(f"{-left} blocks more than a table holds were not cut off")
        return found


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
