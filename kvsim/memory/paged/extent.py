"""Extents: successive blocks of one group of layers that share owners; as lookups find them, and as
tables hold them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kvsim.plumbing.errors import InvariantError

NAMELESS = -1  # content that no request can look up
BLANK = -2  # no content
NO_BLOCKS: list[int] = []  # the numbers of blocks that are not tracked; never changed
# Content that ends inside a block has the key of its last unit plus this number.
INSIDE = 1 << 60

# Why free blocks are cached: their use by their last owner. Retention rules distinguish the layers
# of blocks, and prompts from outputs (vLLM 0.33, v1/core/single_type_kv_cache_manager.py).
PROMPT: Final = 0  # full attention, in the prompt of the last owner
OUTPUT: Final = 1  # full attention, behind that prompt
WINDOW: Final = 2
STATE: Final = 3


class Extent:
    """Successive blocks that the same sequences hold, or that wait together in the free queue.

    key: content key of the first block, or NAMELESS, or BLANK; the next blocks have the next keys.
    num: number of blocks. group: the group of layers.
    blocks: numbers of the blocks if the pool tracks them.
    owners: number of sequences that hold the blocks; 0: the blocks are free.
    is_younger: whether lookups of these keys find older blocks. after: the extent that was cut off
    behind this one while sequences held both.
    why: why the free blocks are cached, except the first num_prompt, which lay in the prompt of
    their last owner.
    aliases: further keys of a single block, each as an extent `of` that block.
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
        """The key after that of the last block."""
        return self.key + self.num

    def cut(self, num: int) -> "Extent":
        """Keep the first `num` blocks, and return the others as an extent with the same owners or,
        if free, just before this one in the queue.
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
        """The extents of the first `num` blocks from here on, including extents cut off behind."""
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
    """Successive blocks of one group of layers with known content.

    num: number of blocks. before: blocks of the first extent that precede them. parts: the extents,
    and the number of blocks in each.
    """

    __slots__ = ("before", "num", "parts")

    def __init__(self, num: int, before: int, parts: list[tuple[Extent, int]]) -> None:
        self.num, self.before, self.parts = num, before, parts

    def without_last(self) -> tuple["Found", "Found"]:
        """All blocks but the last, and the last; only for single blocks."""
        last = Found(1, 0, self.parts[-1:])
        return (Found(self.num - 1, 0, self.parts[:-1]) if self.num > 1 else NOTHING_FOUND), last


# Blocks with keys in a table: position of the first, an extent, and the number of blocks from the
# start of the extent on, including extents cut off behind it.
Part = tuple[int, Extent, int]

NOTHING_FOUND = Found(0, 0, [])
NO_PARTS: list[Part] = []


def extents_of(parts: Iterable[Part]) -> list[Extent]:
    """The extents of these blocks, in order."""
    return [extent for _, head, num in parts for extent in head.chain(num)]


def num_leading_shared(parts: list[Part]) -> int:
    """Number of leading blocks with several owners."""
    num = 0
    for extent in extents_of(parts):
        if extent.owners == 1:
            break
        num += extent.num
    return num


def runs_of(places: Sequence[int]) -> list[tuple[int, int]]:
    """Rising places as runs of successive ones, each as (first, end)."""
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
