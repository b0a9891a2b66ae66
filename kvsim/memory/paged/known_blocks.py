"""The known content of the blocks of a pool, in extents: lookups and registration of keys."""

from collections.abc import Iterable

from kvsim.memory.content_keys import KeyRuns
from kvsim.memory.paged.blocks import (
    NAMELESS,
    NO_BLOCKS,
    NO_EXTENTS,
    NOTHING_FOUND,
    Extent,
    Found,
    Part,
)
from kvsim.memory.paged.known import KnownContent
from kvsim.plumbing.errors import InvariantError


class KnownBlocks:
    """The known content of `num_groups` groups of layers. A block's content is an integer key (see
    content_keys.py): equal keys mean equal content.

    version: changes when the result of a lookup could change.
    """

    def __init__(self, num_groups: int) -> None:
        self.version = 0
        self._known = [KnownContent(g) for g in range(num_groups)]

    # --- looking up ----------------------------------------------------------------------------

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

    def block_of(self, group: int, key: int) -> Extent | None:
        """The oldest block of a group of single blocks with this key."""
        found: list[tuple[Extent, int]] = []
        self._known[group].find(key, 1, found)
        if not found:
            return None
        extent = found[0][0]
        return extent if extent.of is None else extent.of

    def run_below(self, group: int, runs: KeyRuns, below: int, enough: int) -> tuple[int, int]:
        """See `KnownContent.run_below`."""
        return self._known[group].run_below(runs, below, enough)

    def has_duplicate_free(self, found: Found) -> bool:
        """Whether one of these blocks is free while a younger block holds the same content."""
        before = found.before
        for extent, num in found.parts:
            if not extent.owners:
                first = extent.key + before
                if self._known[extent.group].is_known_twice(first, num):
                    return True
            before = 0
        return False

    # --- what blocks hold ----------------------------------------------------------------------

    def register(
        self,
        group: int,
        parts: list[Part],
        place: int,
        first: int,
        count: int,
        blocks: list[int] = NO_BLOCKS,
    ) -> None:
        """Register `count` blocks of a table from `place` on under successive keys. parts: the
        table's blocks with keys, to which they are added. blocks: their numbers.
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

    def name(self, extent: Extent, key: int) -> None:
        """Add `key` to the keys of a single block."""
        if extent.key < 0:
            extent.key = key
            self._known[extent.group].hold(extent)
        elif extent.key != key and all(alias.key != key for alias in extent.aliases):
            alias = Extent(key, 1, extent.group)
            alias.of, extent.aliases = extent, [*extent.aliases, alias]
            self._known[extent.group].hold(alias)
        self.version += 1

    def forget(self, extent: Extent) -> list[int]:
        """Remove all keys of a single block; returns them."""
        if extent.key < 0:
            return NO_BLOCKS
        self.version += 1
        keys = [extent.key, *(alias.key for alias in extent.aliases)]
        for each in (extent, *extent.aliases):
            self._known[extent.group].forget(each, 1)
        extent.num, extent.key, extent.aliases = 1, NAMELESS, NO_EXTENTS
        extent.is_younger = False
        return keys

    # --- parts of tables -----------------------------------------------------------------------

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
        """Remove the blocks before position `end` from `parts`, and return them."""
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

    def forget_part(self, part: Part) -> None:
        """The blocks of a part, which have no other owners, lose their keys."""
        self.version += 1
        _, head, num = part
        for extent in head.chain(num):
            self._known[extent.group].forget(extent, extent.num)

    def _check_content(self, content: Iterable[Extent]) -> None:
        """Raise InvariantError unless exactly the content of these extents is known."""
        known = sum(each.check() for each in self._known)
        held = sum(each.num + len(each.aliases) for each in content if each.key >= 0)
        if known != held:
            raise InvariantError(f"{known} blocks are known, {held} hold what is known")
