"""Extents: successive blocks of one group of layers that share owners; as lookups find them, and as
tables hold them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kvsim.plumbing.errors import InvariantError

NAMELESS = -1  # content that no request can look up
BLANK = -2  # no content
NO_BLOCKS: list[int] = []  # the numbers of blocks that are not tracked; never changed
# Keys of what ends inside a block are those of the unit that it ends with, and so much more.
INSIDE = 1 << 60

# Why free blocks are cached: what they were to whoever gave them back last. Rules of retention tell
# blocks apart by the layers they belong to, and what a prompt made from what was generated (vLLM
# 0.33, v1/core/single_type_kv_cache_manager.py).
PROMPT: Final = 0  # full attention, in the prompt of who held it
OUTPUT: Final = 1  # full attention, behind it
WINDOW: Final = 2
STATE: Final = 3


class Extent:
    """Successive blocks that the same sequences hold, or that wait together in the free queue.

    key: content key of the first block, where the blocks behind it have the keys that follow; or
    NAMELESS, or BLANK. num: number of blocks. group: the group of layers, whose keys these are.
    blocks: the numbers of the blocks, where a pool tracks them.
    owners: number of sequences that hold the blocks; 0: the blocks are free. is_younger: older
    blocks are found by these keys. after: the extent that was cut off behind this one while
    sequences held both. why: what the free blocks are cached for, but for the first num_prompt,
    which lay in the prompt of their last owner. aliases: of a single block, what it is found by
    beside its key, each as an extent `of` that block.
    """

    __slots__ = (
        "after",
        "aliases",
        "blocks",
        "group",
        "is_younger",
        "key",
        "later",
        "num",
        "num_prompt",
        "of",
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
        self.aliases: list[Extent] = NO_EXTENTS
        self.of: Extent | None = None

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


NO_EXTENTS: list[Extent] = []  # never changed


class Found:  # no NamedTuple, whose constructor is interpreted, whatever is compiled
    """Successive blocks of one group of layers that hold known content. num: how many blocks.
    before: blocks of the first extent that lie before them. parts: the extents, and how many of the
    blocks lie in each.
    """

    __slots__ = ("before", "num", "parts")

    def __init__(self, num: int, before: int, parts: list[tuple[Extent, int]]) -> None:
        self.num, self.before, self.parts = num, before, parts

    def without_last(self) -> tuple["Found", "Found"]:
        """Of single blocks all but the last, and that."""
        last = Found(1, 0, self.parts[-1:])
        return (Found(self.num - 1, 0, self.parts[:-1]) if self.num > 1 else NOTHING_FOUND), last


# Blocks with keys in a table: the position of the first of them, an extent, and how many blocks,
# from the beginning of the extent on, in what was cut off behind it too.
Part = tuple[int, Extent, int]

NOTHING_FOUND = Found(0, 0, [])
NO_PARTS: list[Part] = []


def extents_of(parts: Iterable[Part]) -> list[Extent]:
    """The extents in which these blocks lie, in order."""
    return [extent for _, head, num in parts for extent in head.chain(num)]


def num_leading_shared(parts: list[Part]) -> int:
    """How many blocks, up to the first without, have several owners."""
    num = 0
    for extent in extents_of(parts):
        if extent.owners == 1:
            break
        num += extent.num
    return num


def stretches(places: Sequence[int]) -> list[tuple[int, int]]:
    """Rising places as stretches of successive ones: (first, end) of each."""
    if not places:
        return []
    if places[-1] - places[0] == len(places) - 1:
        return [(places[0], places[-1] + 1)]
    found: list[tuple[int, int]] = []
    start = end = places[0]
    for place in places:
        if place != end:
            found.append((start, end))
            start = place
        end = place + 1
    found.append((start, end))
    return found
