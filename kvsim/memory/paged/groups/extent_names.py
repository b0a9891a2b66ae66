"""What blocks in extents are found by: runs of successive keys, in each group of layers.

The keys of a group are those of `KeyRuns.every`: successive blocks of one run of content have
successive keys, however many units they hold.
"""

from collections.abc import Sequence

from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.extent_pool import ExtentPool
from kvsim.memory.paged.groups.extent_table import ExtentTable
from kvsim.memory.paged.groups.hits import Hits, Kind, Lookup, skipped_blocks
from kvsim.memory.paged.groups.names import GroupNames
from kvsim.memory.paged.groups.places import Places
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.parts import NOTHING_FOUND, stretches
from kvsim.memory.paged.table import Table
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.sizes import Sizes


class ExtentLookup(Lookup):
    """As its base, where hits end with blocks."""

    def __init__(
        self, pool: ExtentPool, kinds: Sequence[Kind], sizes: Sizes, *, beyond: bool
    ) -> None:
        super().__init__(kinds, sizes, beyond=beyond)
        self._extents = pool
        self._alone = len(sizes.blocks) == 1 and len(kinds) == 1 and kinds[0].full

    def find(self, table: GroupTable, num_keys: int, most: int) -> Hits:
        if not self._alone:
            return super().find(table, num_keys, most)
        kind, most = self._kinds[0], min(most, num_keys)
        if most <= 0 or not table.runs.ends:
            return self._no_hits
        found = self._extents.find(0, table.runs, 0, most)
        if kind.drops and found.num:
            found = self._extents.find(0, table.runs, 0, found.num - 1)
        if not found.num:
            return self._no_hits
        return Hits(found.num * kind.block_size, (0,), (), 0, (found,))

    def _runs(self, kind: Kind, table: GroupTable) -> KeyRuns:
        assert isinstance(table, ExtentTable)
        return table.runs_in(kind.block_size // self._sizes.match)

    def _of_full(self, index: int, kind: Kind, table: GroupTable, limit: int, tokens: int) -> int:
        size, runs = kind.block_size, self._runs(kind, table)
        num = tokens // size
        for g in kind.members:
            num = self._extents.find(g, runs, 0, num).num
        return num * size

    def _last_known(self, kind: Kind, runs: KeyRuns, below: int, enough: int) -> tuple[int, int]:
        """The last successive places below `below`, or `enough` of them, known to all groups of a
        kind, as (first, end); (0, 0): there is none.
        """
        start, end = 0, below
        while True:
            start, before = 0, end
            for g in kind.members:
                first, last = self._extents.stretch_below(g, runs, end, enough)
                start = max(start, first)
                end = min(end, last)
            if start < end == before:
                return start, end
            if not end:
                return 0, 0

    def _of_window(self, kind: Kind, table: GroupTable, tokens: int, *, drops: bool) -> int:
        assert kind.window_tokens is not None
        size, aligned, runs = kind.block_size, self._sizes.aligned, self._runs(kind, table)
        need, each = ceil_div(kind.window_tokens - 1, size) + drops, aligned // size
        below = tokens // size
        while below:
            start, last = self._last_known(kind, runs, below, need + each)
            end = last - (last - drops) % each
            if end > start and (end - start >= need or not start):
                end -= end % each if end - start < need else 0
                end -= min(drops, end)
                return (end - end % each) * size
            below = start
        return 0

    def _of_state(self, kind: Kind, table: GroupTable, tokens: int) -> int:
        each, runs = self._sizes.aligned // kind.block_size, self._runs(kind, table)
        below = tokens // kind.block_size
        while below:
            start, end = self._last_known(kind, runs, below, each)
            end -= end % each
            if end > start:
                return end * kind.block_size
            below = start
        return 0

    def _hits(self, table: GroupTable, tokens: int, junction: int) -> Hits:
        first, found = [0] * self._num, [NOTHING_FOUND] * self._num
        for kind in self._kinds:
            size, runs = kind.block_size, self._runs(kind, table)
            start = skipped_blocks(kind.window_tokens, tokens, size)
            for g in kind.members:
                first[g] = start
                found[g] = self._extents.find(g, runs, start, tokens // size)
        return Hits(tokens, tuple(first), (), junction, tuple(found))


class ExtentNames(GroupNames):
    """As its base, where no hit ends inside a block."""

    def __init__(
        self,
        pool: ExtentPool,
        kinds: Sequence[Kind],
        sizes: Sizes,
        retention_tokens: int | None,
        *,
        places: Places,
        late: bool,
    ) -> None:
        lookup = ExtentLookup(pool, kinds, sizes, beyond=places.counts_drops)
        super().__init__(
            pool, lookup, kinds, sizes, sizes.whole, retention_tokens, places=places, late=late
        )
        self._extents = pool
        self._alone = sizes.same and len(sizes.blocks) == 1 and len(kinds) == 1 and kinds[0].full
        self._units = [size // sizes.match for size in sizes.blocks]

    def fresh(self, runs: KeyRuns, num_shareable: int) -> ExtentTable:
        return ExtentTable(runs, num_shareable, self._num, len(self._kinds))

    def register(self, table: Table, full: int, *, in_step: bool) -> None:
        if not self._alone:
            super().register(table, full, in_step=in_step)
            return
        assert isinstance(table, ExtentTable)
        at, parts, held = table.registered, table.parts[0], table.lists[0]
        if full <= at:
            return
        for first, count in table.runs.between(at, full):
            self._extents.register(0, parts, at, first, count, held[at : at + count])
            at += count
        table.registered = table.named[0] = full

    def may_move(self, table: Table, num_hits: int) -> bool:
        pool = self._extents
        return pool.has_duplicate_free(pool.find(0, table.runs, 0, num_hits))

    def kept_until(self, table: ExtentTable, g: int) -> int:
        """The place in group g from which on no block that leaves the window is ever named."""
        retention = self._retention[self._kind_of[g]]
        assert retention is not None
        return retention.kept_until(table.boundaries, table.junction_tokens)

    def known_blocks(self, known: int, g: int) -> int:
        """How many blocks of group g are known where so many steps of tokens are."""
        return known * self._step // self._sizes.blocks[g]

    def lookable_blocks(self, table: ExtentTable, g: int) -> int:
        """How many blocks of group g other sequences can ever look up."""
        return table.num_shareable // self._units[g]

    def _name_in(self, table: GroupTable, g: int, places: Sequence[int], *, in_step: bool) -> None:
        assert isinstance(table, ExtentTable)
        is_state = g in self._states
        if is_state:
            places = [place for place in places if place in table.held_states]
        runs, parts, num = table.runs_in(self._units[g]), table.parts[g], self._num
        held, skipped = table.lists[g], table.skipped[g]
        for start, end in stretches(places):
            at = start
            for first, count in runs.between(start, end):
                blocks = held[at - skipped : at - skipped + count]
                self._extents.register(g, parts, at, first, count, blocks)
                at += count
                if is_state and in_step:
                    self.in_step.update(range(first * num + g, (first + count) * num + g, num))

    def num_free_of(self, hits: Hits, g: int) -> int:
        return self._extents.num_free_of(hits.found[g])

    def is_being_made(self, hits: Hits) -> bool:
        if not self.in_step:
            return False
        for g in self._states:
            found = hits.found[g]
            if found.num:
                extent, num = found.parts[-1]
                before = found.before if len(found.parts) == 1 else 0
                if (extent.key + before + num - 1) * self._num + g in self.in_step:
                    return True
        return False
