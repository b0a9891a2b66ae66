"""What the blocks of a pool hold, in extents: lookups, and the keys that blocks of tables get."""

from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.extent import NO_BLOCKS, Extent
from kvsim.memory.paged.known import KnownContent
from kvsim.memory.paged.parts import NOTHING_FOUND, Found, Part
from kvsim.memory.paged.pool import Pool


class ExtentContent(Pool):
    """The known content of so many groups of layers."""

    def __init__(self, num_blocks: int, num_groups: int, *, tracked: bool) -> None:
        super().__init__(num_blocks, tracked=tracked)
        self._known = [KnownContent(g) for g in range(num_groups)]

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

    def register(
        self,
        group: int,
        parts: list[Part],
        place: int,
        first: int,
        count: int,
        blocks: list[int] = NO_BLOCKS,
    ) -> None:
        """So many blocks of a table from `place` on hold content with successive keys from now on.
        parts: those of the table that have keys, to which they are added. blocks: their numbers.
        """
        self.version += 1
        known = self._known[group]
        if parts:
            begin, last, num = parts[-1]
            alone = last.owners == 1 and last.after is None and begin + num == place
            if alone and last.end == first and known.extend(last, count):
                parts[-1] = begin, last, num + count
                if blocks:
                    last.blocks += blocks
                return
        at = 0
        for extent in known.add(first, count):
            extent.owners = 1
            if blocks:
                extent.blocks = blocks[at : at + extent.num]
                at += extent.num
            parts.append((place, extent, extent.num))
            place += extent.num

    def _cut(self, part: Part, num: int) -> tuple[Part, Part]:
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

    def cut_before(self, parts: list[Part], end: int) -> list[Part]:
        """Take the blocks before position `end` out of these parts."""
        num = 0
        for place, _, count in parts:
            if place >= end:
                break
            num += 1
            if place + count > end:
                parts[num - 1 : num] = self._cut(parts[num - 1], end - place)
                break
        gone = parts[:num]
        del parts[:num]
        return gone

    def forget(self, part: Part) -> None:
        """The blocks of a part, which nobody else holds, have no keys any more."""
        self.version += 1
        _, head, num = part
        for extent in head.chain(num):
            self._known[extent.group].forget(extent, extent.num)
