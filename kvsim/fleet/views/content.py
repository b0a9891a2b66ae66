"""Prompt contents as routers compare them: runs of ids, cut into blocks or compared with each
other.
"""

from collections.abc import Iterator

from kvsim.request import TokenRuns


def common_length(one: TokenRuns, other: TokenRuns) -> int:
    """Number of leading units that two contents share."""
    at = same = 0
    place = used = 0
    while at < len(one) and place < len(other):
        start, length = one[at]
        begin, count = other[place]
        start, length = start + same, length - same
        begin, count = begin + used, count - used
        if start != begin:
            break
        step = min(length, count)
        same, used = same + step, used + step
        if step == length:
            at, same = at + 1, 0
        if step == count:
            place, used = place + 1, 0
    return sum(length for _, length in one[:at]) + same


def cut(content: TokenRuns, units: int) -> tuple[TokenRuns, TokenRuns]:
    """Split a content in two: its first `units` units, and the rest."""
    for at, (start, length) in enumerate(content):
        if units < length:
            head = (*content[:at], (start, units)) if units else content[:at]
            return head, ((start + units, length - units), *content[at + 1 :])
        units -= length
    return content, ()


def blocks_of(content: TokenRuns, block: int, *, partial: bool = False) -> Iterator[TokenRuns]:
    """Divide the content into blocks of `block` units. partial: include the last block even if it
    is not full.
    """
    held: list[tuple[int, int]] = []
    room = block
    for start, length in content:
        while length >= room:
            if held and held[-1][0] + held[-1][1] == start:
                held[-1] = (held[-1][0], held[-1][1] + room)
            else:
                held.append((start, room))
            yield tuple(held)
            start, length = start + room, length - room
            held, room = [], block
        if length:
            if held and held[-1][0] + held[-1][1] == start:
                held[-1] = (held[-1][0], held[-1][1] + length)
            else:
                held.append((start, length))
            room -= length
    if partial and held:
        yield tuple(held)


class ChainedBlocks:
    """Hashes of blocks, chained so that each depends on all content before it: equal hashes mean
    equal prefixes.

    A hash has 128 bits, like the block hashes of engines. Earlier contents are not stored, since a
    fleet sees millions.
    """

    def __init__(self, block: int, *, partial: bool = False, most: int | None = None) -> None:
        self._block = block
        self._partial = partial
        self._most = most
        self._last: TokenRuns | None = None  # a router asks again for the request that it decides
        self._found: list[int] = []

    def of(self, content: TokenRuns) -> list[int]:
        """The hashes of the blocks of a content, in order; a caller does not change the list."""
        if content is not self._last:
            self._last, self._found = content, self._hashed(content)
        return self._found

    def _hashed(self, content: TokenRuns) -> list[int]:
        before = 0
        found: list[int] = []
        for piece in blocks_of(content, self._block, partial=self._partial):
            if self._most is not None and len(found) == self._most:
                break
            before = hash((before, piece)) << 64 ^ hash((piece, before))
            found.append(before)
        return found
