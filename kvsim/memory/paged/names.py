"""What blocks of several groups of layers are found by: tables as the prefix cache sees them.

A block is known by the content of all tokens up to its end, in one group of layers. Which blocks
of windows and states are known at all is a question of retention (see retention.py). What a step
computes becomes known up to the last place where a hit can end, in all groups; those whose hits
lose a block know one more.
"""

from collections.abc import Sequence

from kvsim.memory.content_keys import KeyRuns
from kvsim.memory.paged.extent import stretches
from kvsim.memory.paged.hits import Hits, Kind, Lookup
from kvsim.memory.paged.hybrid.checkpoint_rules import CheckpointRules
from kvsim.memory.paged.hybrid.inside import Inside
from kvsim.memory.paged.hybrid.retention import Retention
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.table import Table
from kvsim.vllm.sizes import Sizes


class BlockNames:
    """Names blocks of tables and looks them up. They are what a prefix cache registers and finds.

    names_private: content that nobody else can name gets keys at once, since blocks return to the
    pool while their sequence runs; else when it is preempted. names_late: such content gets them
    when its blocks return, before which nobody looks for it, and none if its sequence has
    finished, after which nobody does.

    kinds: of the groups that are cached. step: tokens of what `register` counts. in_step: states
    that the step being scheduled is still to make, by `state_key`. late: the tables can do with
    `names_late`. drafts: tokens are drafted ahead.
    """

    def __init__(
        self,
        pool: BlockPool,
        kinds: Sequence[Kind],
        sizes: Sizes,
        step: int,
        retention_tokens: int | None,
        *,
        places: CheckpointRules,
        late: bool,
        drafts: bool,
    ) -> None:
        self.in_step: set[int] = set()
        self._pool, self._sizes, self._step = pool, sizes, step
        self._kinds, self._num, self._places = kinds, len(sizes.blocks), places
        below = places.counts_drops
        self._lookup = Lookup(pool, kinds, sizes, beyond=below)
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
        self._units = [size // sizes.match for size in sizes.blocks]
        full = sizes.same and len(sizes.blocks) == len(kinds) == 1 and kinds[0].full
        self._alone = full and not pool.singly
        self._inside: Inside | None = None
        if pool.singly and not sizes.same:
            inside = Inside(
                pool, kinds, sizes, places, self._retention, self.in_step, drafts=drafts
            )
            self._inside = inside

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

    def fresh(self, runs: KeyRuns, num_shareable: int) -> Table:
        """An empty table."""
        return Table(runs, num_shareable, self._num, len(self._kinds))

    def opened(self, table: Table, hit_tokens: int) -> None:
        """A table has taken over its hits, which are known."""
        table.registered = table.covered = hit_tokens // self._step
        table.named = [hit_tokens // kind.block_size for kind in self._kinds]

    def find(self, table: Table, known: int, most: int) -> Hits:
        """The longest prefix, at most the first `most` keys, that every group can continue from;
        `known` keys are of tokens that are there.
        """
        return self._lookup.find(table, known, most)

    def may_move(self, table: Table, num_hits: int) -> bool:
        """Asked where no table gives blocks back while its sequence runs; elsewhere, while the head
        of the queue has hits, runs end when a block moves.
        """
        pool = self._pool
        return pool.has_duplicate_free(pool.find(0, table.runs, 0, num_hits))

    def register(self, table: Table, full: int, *, in_step: bool) -> None:
        """The first `full` steps of tokens hold known content from now on, which the step being
        scheduled makes if `in_step`.
        """
        if full <= table.registered:
            return
        if self._alone:
            self._name_run(table, 0, table.registered, full)
            table.registered = table.named[0] = full
            return
        tokens = full * self._step
        self.name(table, tokens, len(table.runs) * self._sizes.match, in_step=in_step)
        table.registered = full

    def name(self, table: Table, tokens: int, hashed_tokens: int, *, in_step: bool) -> None:
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
        if self._inside is not None:
            self._inside.name_tails(table, tokens, hashed_tokens)

    def register_returning(self, table: Table, groups: Sequence[int], full: int) -> None:
        """`register` for these groups alone, which give these blocks back: they look as far back as
        each other, and all of the blocks that they have given back before have been named.
        """
        most = len(table.runs) * self._sizes.match // self._sizes.blocks[groups[0]]
        places = self.places(table, groups[0], min(full, most))
        if places:
            for g in groups:
                self._name_in(table, g, places, in_step=True)

    def places(self, table: Table, g: int, full: int) -> Sequence[int]:
        """Which of the first `full` positions of group g get keys now."""
        k = self._kind_of[g]
        start = max(table.named[k], table.skipped[g])
        retention = self._retention[k]
        if retention is None:
            return range(start, full)
        return retention.kept(start, full, table.boundaries, table.junction_tokens)

    def _name_in(self, table: Table, g: int, places: Sequence[int], *, in_step: bool) -> None:
        """The blocks at these positions in group g hold known content, but for gaps."""
        pool, runs = self._pool, table.runs_in(self._units[g])
        if not pool.singly and g not in self._states:
            for start, end in stretches(places):
                self._name_run(table, g, start, end)
            return
        for place in places:
            block = table.block_at(g, place)
            if block is None:
                continue
            if self._inside is not None:
                pool.forget(block)  # it was known to a point inside
            pool.name(block, runs.at(place))
            if in_step and g in self._states:
                self.in_step.add(self.state_key(runs.at(place), g))

    def _name_run(self, table: Table, g: int, at: int, end: int) -> None:
        """The blocks from position `at` to `end` in group g, which are not kept one by one."""
        held, skipped, parts = table.lists[g], table.skipped[g], table.parts[g]
        for first, count in table.runs_in(self._units[g]).between(at, end):
            blocks = held[at - skipped : at - skipped + count]
            self._pool.register(g, parts, at, first, count, blocks)
            at += count

    def state_key(self, key: int, g: int) -> int:
        """A state of group g in `in_step`."""
        return key * self._num + g

    def name_inside(self, table: Table, *, checkpoint: bool) -> None:
        """A chunk that ends with the table's last slot makes known what ends inside a block.
        checkpoint: it leaves a state on the way.
        """
        if self._inside is not None:
            self._inside.name(table, checkpoint=checkpoint)

    def is_being_made(self, hits: Hits) -> bool:
        """Whether a state that these hits go on from got its key in this very step."""
        if not self.in_step:
            return False
        for g in self._states:
            found = hits.found[g]
            if found.num:
                extent, num = found.parts[-1]
                before = found.before if len(found.parts) == 1 else 0
                if self.state_key(extent.key + before + num - 1, g) in self.in_step:
                    return True
        return False

    # --- what need not be named ----------------------------------------------------------------

    def kept_until(self, table: Table, g: int) -> int:
        """The place in group g from which on no block that leaves the window is ever named."""
        k = self._kind_of.get(g)
        retention = None if k is None else self._retention[k]
        if retention is None:
            return 0
        return retention.kept_until(table.boundaries, table.junction_tokens)

    def known_blocks(self, known: int, g: int) -> int:
        """How many blocks of group g are known where so many steps of tokens are."""
        return known * self._step // self._sizes.blocks[g]

    def lookable_blocks(self, table: Table, g: int) -> int:
        """How many blocks of group g other sequences can ever look up."""
        return table.num_shareable // self._units[g]
