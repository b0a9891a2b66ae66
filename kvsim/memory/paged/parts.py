"""Blocks with known content, as lookups find them and as tables hold them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvsim.memory.paged.extent import Extent


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
