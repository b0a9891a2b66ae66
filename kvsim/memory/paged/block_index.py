"""The hash-to-block map of a prefix cache: for each key (block hash) the oldest block with that
content.

Keys that share a run (see content_keys.py) are covered by extents that do not overlap, in key
order. If a sequence computes cached content again, its blocks are younger duplicates. Lookups find
a duplicate once the older block is evicted.
"""

from kvsim.memory.content_keys import LONGEST_RUN, KeyRuns
from kvsim.memory.paged.blocks import NO_EXTENTS, Extent
from kvsim.plumbing.errors import InvariantError


class KnownContent:
    """Cached blocks of one group of layers by key, as extents. A call that concerns part of an
    extent splits it.
    """

    def __init__(self, group: int) -> None:
        self._group = group
        self._oldest: dict[int, list[Extent]] = {}  # by name, in the order of their keys
        self._younger: dict[int, list[Extent]] = {}  # by name, in the order of their age

    def find(self, first: int, count: int, found: list[tuple[Extent, int]]) -> tuple[int, int]:
        """Number of leading keys of `count` successive keys that are cached, and number of blocks
        before them in the first extent. Appends (extent, number of blocks) pairs to `found`.
        """
        extents = self._oldest.get(first // LONGEST_RUN)
        if extents is None:
            return 0, 0
        at, key, end, before = _place(extents, first), first, first + count, 0
        if at and extents[at - 1].end > first:
            at -= 1
            before = first - extents[at].key
            key -= before
        while key < end and at < len(extents):
            extent = extents[at]
            if extent.key != key:
                break
            key += extent.num
            found.append((extent, min(key, end) - max(extent.key, first)))
            at += 1
        return max(min(key, end) - first, 0), before

    def run_below(self, runs: KeyRuns, below: int, enough: int) -> tuple[int, int]:
        """The last run of cached block positions before `below`, at most `enough` long, as (first,
        end); (0, 0): none is cached.
        """
        at, end = below, 0
        while at > 0:
            start, first = runs.run_before(at)
            key = first + at - start  # key after that of the last place
            extents = self._oldest.get(first // LONGEST_RUN, NO_EXTENTS)
            index = _place(extents, key) - 1
            while at > start:
                if index < 0 or extents[index].end < key:
                    if end:
                        return at, end
                    if index < 0:
                        at = start
                        break
                    key = extents[index].end
                    at = start + key - first
                if not end:
                    end = at
                key = extents[index].key
                at = max(start + key - first, start)
                if end - at >= enough:
                    return at, end
                index -= 1
        return (0, end) if end else (0, 0)

    def is_known_twice(self, first: int, count: int) -> bool:
        """Whether a younger duplicate block holds one of these keys."""
        end = first + count
        younger = self._younger.get(first // LONGEST_RUN, ()) if self._younger else ()
        return any(extent.key < end and extent.end > first for extent in younger)

    def add(self, first: int, count: int) -> list[Extent]:
        """Register `count` new blocks under successive keys; returns them as extents, in order."""
        name, key, end = first // LONGEST_RUN, first, first + count
        extents = self._oldest.setdefault(name, [])
        at, made = _place(extents, key), []
        if at and extents[at - 1].end > key:
            at -= 1
        while key < end:
            older = extents[at] if at < len(extents) else None
            if older is not None and older.key <= key:
                extent = Extent(key, min(end, older.end) - key, self._group)
                extent.is_younger = True
                self._younger.setdefault(name, []).append(extent)
            else:
                extent = Extent(
                    key, (end if older is None else min(end, older.key)) - key, self._group
                )
                extents.insert(at, extent)
            made.append(extent)
            key = extent.end
            at += 1
        return made

    def hold(self, extent: Extent) -> None:
        """Register one block under its key."""
        name = extent.key // LONGEST_RUN
        extents = self._oldest.setdefault(name, [])
        at = _place(extents, extent.key)
        starts = at < len(extents) and extents[at].key == extent.key
        extent.is_younger = starts or (at > 0 and extents[at - 1].end > extent.key)
        if extent.is_younger:
            self._younger.setdefault(name, []).append(extent)
        else:
            extents.insert(at, extent)

    def extend(self, extent: Extent, count: int) -> bool:
        """Append `count` new blocks to `extent`; False: other blocks hold the next keys, nothing
        changed.
        """
        if extent.is_younger:
            return False
        extents = self._oldest[extent.key // LONGEST_RUN]
        behind = _place(extents, extent.key) + 1
        if behind < len(extents) and extents[behind].key < extent.end + count:
            return False
        extent.num += count
        return True

    def cut(self, extent: Extent, num: int) -> Extent:
        """Cut `extent` after its first `num` blocks; returns the others."""
        name, rest = extent.key // LONGEST_RUN, extent.cut(num)
        if extent.is_younger:
            younger = self._younger[name]
            younger.insert(younger.index(extent) + 1, rest)
        else:
            extents = self._oldest[name]
            extents.insert(_place(extents, rest.key), rest)
        return rest

    def join(self, extent: Extent, rest: Extent) -> None:
        """Merge the free extent `rest` into the free extent with the preceding keys."""
        extents = self._oldest[rest.key // LONGEST_RUN]
        del extents[_place(extents, rest.key)]
        extent.num += rest.num
        if rest.blocks:
            extent.blocks += rest.blocks

    def forget(self, extent: Extent, count: int) -> None:
        """Remove the keys of the last `count` blocks of an extent that has no other owners."""
        name, end = extent.key // LONGEST_RUN, extent.end
        extent.num -= count
        if extent.is_younger:
            if not extent.num:
                self._drop_younger(name, extent)
            return
        if not extent.num:
            extents = self._oldest[name]
            if len(extents) == 1:
                del self._oldest[name]
            else:
                del extents[_place(extents, extent.key)]
        if self._younger:
            self._succeed(name, end - count, end)

    def _succeed(self, name: int, first: int, end: int) -> None:
        """After an eviction, let lookups of keys `first` to `end` find the oldest remaining
        duplicates.
        """
        for extent in self._younger.get(name, ()):
            if extent.key < end and extent.end > first:
                break
        else:
            return
        if extent.key < first:
            extent = self.cut(extent, first - extent.key)
        if extent.end > end:
            self.cut(extent, end - extent.key)
        self._drop_younger(name, extent)
        extent.is_younger = False
        extents = self._oldest.setdefault(name, [])
        extents.insert(_place(extents, extent.key), extent)
        for part in (first, extent.key), (extent.end, end):
            if part[0] < part[1]:
                self._succeed(name, *part)

    def _drop_younger(self, name: int, extent: Extent) -> None:
        younger = self._younger[name]
        younger.remove(extent)
        if not younger:
            del self._younger[name]

    def check(self) -> int:
        """Raise InvariantError unless each key has one oldest block, and every younger block an
        older one; returns the number of blocks with keys.
        """
        num = 0
        for name, extents in self._oldest.items():
            end = name * LONGEST_RUN
            for extent in extents:
                if extent.key < end or extent.num < 1 or extent.is_younger:
                    raise InvariantError(f"{extent.num} blocks from key {extent.key} on twice")
                end = extent.end
                num += extent.num
        for name, extents in self._younger.items():
            for extent in extents:
                oldest: list[Extent] = []
                held = sum(
                    max(0, min(extent.end, old.end) - max(extent.key, old.key))
                    for old in self._oldest.get(name, oldest)
                )
                if held != extent.num or extent.num < 1 or not extent.is_younger:
                    raise InvariantError(f"younger content from {extent.key} on has no elder")
                num += extent.num
        return num


def _place(extents: list[Extent], key: int) -> int:
    """Index of the first extent that begins at `key` or later."""
    low, high = 0, len(extents)
    while low < high:
        middle = (low + high) // 2
        if extents[middle].key < key:
            low = middle + 1
        else:
            high = middle
    return low
