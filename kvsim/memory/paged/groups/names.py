"""What blocks of several groups of layers are found by: tables as the prefix cache sees them.

A block is known by the content of all tokens up to its end, in one group of layers. Which blocks
of windows and states are known at all is a question of retention (see retention.py). What a step
computes becomes known up to the last place where a hit can end, in all groups; those whose hits
lose a block know one more.
"""

from collections.abc import Sequence

from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.groups.hits import Hits, Kind, Lookup
from kvsim.memory.paged.groups.places import Places
from kvsim.memory.paged.groups.retention import Retention
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.pool import Pool
from kvsim.memory.paged.table import Table
from kvsim.vllm.sizes import Sizes


class GroupNames:
    """Names blocks of tables and looks them up. See `prefix_cache.Tables`.

    kinds: of the groups that are cached. step: tokens of what `register` counts. in_step: keys of
    states that the step being scheduled is still to make. late: the tables can do with
    `names_late`.
    """

    def __init__(
        self,
        pool: Pool,
        lookup: Lookup,
        kinds: Sequence[Kind],
        sizes: Sizes,
        step: int,
        retention_tokens: int | None,
        *,
        places: Places,
        late: bool,
    ) -> None:
        self.in_step: set[int] = set()
        self._pool, self._lookup, self._sizes, self._step = pool, lookup, sizes, step
        self._kinds, self._num, self._places = kinds, len(sizes.blocks), places
        below = places.counts_drops
        self._retention = [
            None
            if kind.full
            else Retention(kind, sizes.aligned, retention_tokens, below_junctions=below)
            for kind in kinds
        ]
        self._kind_of = {g: k for k, kind in enumerate(kinds) for g in kind.members}
        self._states = [g for kind in kinds if kind.recurrent for g in kind.members]
        self._drops = any(kind.drops for kind in kinds)
        # What a window gives back while its sequence runs must be found again.
        self.names_private = any(not kind.full for kind in kinds)
        windows = [kind for kind in kinds if not kind.recurrent]
        looks = [kind.window_tokens for kind in windows if kind.window_tokens is not None]
        # A window shorter than a block could give back what is not known yet.
        self.names_late = late and min(looks, default=sizes.whole) >= sizes.whole

    def boundaries(self, prompt_tokens: int) -> tuple[int, ...]:
        """After how many tokens others, with the same prompt or a longer one, can go on from it."""
        if not self._drops or not self._places.counts_drops:
            return (prompt_tokens - 1,)
        whole = self._sizes.whole
        ends = (prompt_tokens - 1) // whole * whole, prompt_tokens // whole * whole
        return max(0, ends[0] - whole), max(0, ends[1] - whole)

    @property
    def version(self) -> int:
        return self._pool.version

    def fresh(self, runs: KeyRuns, num_shareable: int) -> GroupTable:
        """An empty table."""
        raise NotImplementedError

    def opened(self, table: GroupTable, hit_tokens: int) -> None:
        """A table has taken over its hits, which are known."""
        table.registered = table.covered = hit_tokens // self._step
        table.named = [hit_tokens // kind.block_size for kind in self._kinds]

    def find(self, table: Table, known: int, most: int) -> Hits:
        """The longest prefix, at most the first `most` keys, that every group can continue from;
        `known` keys are of tokens that are there.
        """
        assert isinstance(table, GroupTable)
        return self._lookup.find(table, known, most)

    def may_move(self, table: Table, num_hits: int) -> bool:
        """Asked where no table gives blocks back while its sequence runs; elsewhere, while the head
        of the queue has hits, runs end when a block moves.
        """
        raise NotImplementedError

    def register(self, table: Table, full: int, *, in_step: bool) -> None:
        """The first `full` steps of tokens hold known content from now on, which the step being
        scheduled makes if `in_step`.
        """
        assert isinstance(table, GroupTable)
        if full <= table.registered:
            return
        tokens = full * self._step
        self.name(table, tokens, len(table.runs) * self._sizes.match, in_step=in_step)
        table.registered = full

    def name(self, table: GroupTable, tokens: int, hashed_tokens: int, *, in_step: bool) -> None:
        """The same of the first `tokens` tokens, so many of which have keys."""
        for k, kind in enumerate(self._kinds):
            known = self._sizes.cacheable(tokens, kind.block_size, drops=kind.drops)
            full = min(known, hashed_tokens) // kind.block_size
            if full > table.named[k]:
                places = self.places(table, kind.members[0], full)
                if places:
                    for g in kind.members:
                        self._name_in(table, g, places, in_step=in_step)
                table.named[k] = full

    def register_returning(self, table: GroupTable, groups: Sequence[int], full: int) -> None:
        """`register` for these groups alone, which give these blocks back: they look as far back as
        each other, and all of the blocks that they have given back before have been named.
        """
        most = len(table.runs) * self._sizes.match // self._sizes.blocks[groups[0]]
        places = self.places(table, groups[0], min(full, most))
        if places:
            for g in groups:
                self._name_in(table, g, places, in_step=True)

    def places(self, table: GroupTable, g: int, full: int) -> Sequence[int]:
        """Which of the first `full` positions of group g get keys now."""
        k = self._kind_of[g]
        start = max(table.named[k], table.skipped[g])
        retention = self._retention[k]
        if retention is None:
            return range(start, full)
        return retention.kept(start, full, table.boundaries, table.junction_tokens)

    def _name_in(self, table: GroupTable, g: int, places: Sequence[int], *, in_step: bool) -> None:
        """The blocks at these positions in group g hold known content, but for null ones."""
        raise NotImplementedError

    def num_free_of(self, hits: Hits, g: int) -> int:
        """How many of the hit blocks of group g wait in the free queue."""
        raise NotImplementedError

    def name_inside(self, table: GroupTable, *, checkpoint: bool) -> None:
        """A chunk that ends with the table's last slot makes known what ends inside a block.
        checkpoint: it leaves a state on the way.
        """
        return

    def is_being_made(self, hits: Hits) -> bool:
        """Whether a state that these hits go on from got its key in this very step."""
        raise NotImplementedError
