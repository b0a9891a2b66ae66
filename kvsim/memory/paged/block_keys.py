"""Keys of the blocks of tables with one or more groups of layers.

The key of a block stands for all tokens up to its end, in one group of layers. Retention decides
which blocks of windows and states get keys (see retention.py). A step registers blocks in all
groups up to the last point where a hit can end. Groups with hits that drop their last block (EAGLE)
register one more.
"""

from collections.abc import Sequence

from kvsim.memory.paged.blocks import Table, runs_of
from kvsim.memory.paged.group_lookup import Hits, Kind, Lookup
from kvsim.memory.paged.hybrid.checkpoint_rules import CheckpointRules
from kvsim.memory.paged.hybrid.inside import Inside
from kvsim.memory.paged.hybrid.retention import Retention
from kvsim.memory.paged.pool import BlockPool
from kvsim.speculation import Speculation
from kvsim.vllm.sizes import Sizes


class BlockNames:
    """Registers (caches) the blocks of sequences under their keys, and looks blocks up by key.

    names_private: content that only its own sequence can hit gets keys once it is computed, since
    windows free blocks early; else only at preemption. names_late: such content gets keys only when
    its blocks are freed, and none if its sequence has finished.

    kinds: the kinds of cached groups. lookup: finds the prefixes that all kinds have. step: tokens
    per unit of `register`. in_step: states that the step being scheduled will compute, by key and
    group. late: whether the tables support `names_late`. redrafted: number of last computed tokens
    that chained draft modules may write again. Kinds with hits that drop a block do not register
    these tokens. It is 0 with one group, see `PrefixCache`.
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
        speculation: Speculation | None,
    ) -> None:
        self.in_step: set[tuple[int, int]] = set()
        self._pool, self._sizes, self._step = pool, sizes, step
        self._kinds, self.num_kinds, self._places = kinds, len(kinds), places
        below = places.counts_drops
        self.lookup = Lookup(pool, kinds, sizes, beyond=below)
        self._retention = [
            None
            if kind.reach is None or kind.reach.chunked
            else Retention(kind, sizes.aligned, retention_tokens, below_junctions=below)
            for kind in kinds
        ]
        self._kind_of = {g: k for k, kind in enumerate(kinds) for g in kind.members}
        self._states = [g for kind in kinds if kind.recurrent for g in kind.members]
        self._drops = any(kind.drops for kind in kinds)
        again = 0 if speculation is None else speculation.redrafted_tokens
        self.redrafted = again if self._drops and len(sizes.blocks) > 1 else 0
        # Lookups must find blocks that a window frees while their sequence runs.
        self.names_private = any(not kind.full for kind in kinds)
        reaches = [kind.reach for kind in kinds if not kind.recurrent and kind.reach is not None]
        # A window shorter than a block could free content before it is known. A chunk frees its
        # last block in the step after the one that fills it.
        self.names_late = late and not any(
            reach.chunked or reach.tokens < sizes.whole for reach in reaches
        )
        self._units = [size // sizes.match for size in sizes.blocks]
        full = sizes.same and len(sizes.blocks) == len(kinds) == 1 and kinds[0].full
        self._alone = full and not pool.singly
        self._named_states: list[tuple[int, Table, int, int]] | None = None
        self._inside: Inside | None = None
        if pool.singly and not sizes.same:
            inside = Inside(
                pool,
                kinds,
                sizes,
                places,
                self._retention,
                self.in_step,
                redrafted=self.redrafted,
                drafts=speculation is not None,
            )
            self._inside = inside

    def boundaries(self, prompt_tokens: int) -> tuple[int, ...]:
        """Token counts at which other sequences can continue from a prompt of this length."""
        if not self._drops or not self._places.counts_drops:
            return (prompt_tokens - 1,)
        whole = self._sizes.whole
        ends = (prompt_tokens - 1) // whole * whole, prompt_tokens // whole * whole
        return max(0, ends[0] - whole), max(0, ends[1] - whole)

    def opened(self, table: Table, hit_tokens: int) -> None:
        """Mark the hits that a table starts with as registered."""
        table.registered = table.covered = hit_tokens // self._step
        table.named = [hit_tokens // kind.block_size for kind in self._kinds]

    def register(self, table: Table, full: int, *, in_step: bool) -> None:
        """Cache the first `full` units of a table (cache_full_blocks). in_step: the step being
        scheduled computes the content.
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
        """`register` for the first `tokens` tokens, of which `hashed_tokens` have hashes (keys)."""
        for k, kind in enumerate(self._kinds):
            known = self._sizes.cacheable(
                tokens, kind.block_size, drops=kind.drops, redrafted=self.redrafted
            )
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
        """`register` for only `groups`, which are about to free blocks. The groups have equal
        windows, and all blocks that they freed before have keys.
        """
        most = len(table.runs) * self._sizes.match // self._sizes.blocks[groups[0]]
        places = self.places(table, groups[0], min(full, most))
        if places:
            for g in groups:
                self._name_in(table, g, places, in_step=True)

    def places(self, table: Table, g: int, full: int) -> Sequence[int]:
        """Positions below `full` in the table of group g with blocks to cache now."""
        k = self._kind_of[g]
        start = max(table.named[k], table.skipped[g])
        retention = self._retention[k]
        if retention is None:
            return range(start, full)
        return retention.kept(start, full, table.boundaries, table.junction_tokens)

    def _name_in(self, table: Table, g: int, places: Sequence[int], *, in_step: bool) -> None:
        """Cache the blocks at these positions in group g, skipping null blocks."""
        pool, runs = self._pool, table.runs_in(self._units[g])
        if not pool.singly and g not in self._states:
            for start, end in runs_of(places):
                self._name_run(table, g, start, end)
            return
        for place in places:
            block = table.block_at(g, place)
            if block is None:
                continue
            if self._inside is not None:
                pool.forget(block)  # its key was of a point inside it
            pool.name(block, runs.at(place))
            if self._named_states is not None and g in self._states:
                tokens = (place + 1) * self._sizes.blocks[g]
                self._named_states.append((g, table, block.blocks[0], tokens))
            if in_step and g in self._states:
                self.in_step.add((runs.at(place), g))

    def tell_states(self) -> None:
        """Start recording which recurrent states get cached, for `take_named_states`."""
        if self._states:
            self._named_states = []

    def take_named_states(self) -> list[tuple[int, Table, int, int]]:
        """(group, table, block number, tokens) of each recurrent state cached since the last
        call.
        """
        found = self._named_states
        if not found:
            return []
        self._named_states = []
        return found

    def _name_run(self, table: Table, g: int, at: int, end: int) -> None:
        """Cache the blocks from position `at` to `end` in group g, which stores blocks as
        extents.
        """
        held, skipped, parts = table.lists[g], table.skipped[g], table.parts[g]
        for first, count in table.runs_in(self._units[g]).between(at, end):
            blocks = held[at - skipped : at - skipped + count]
            self._pool.register(g, parts, at, first, count, blocks)
            at += count

    def name_inside(self, table: Table, *, checkpoint: bool) -> None:
        """Cache a partly filled block: content that ends inside a block with the last slot of a
        chunk. checkpoint: the chunk also leaves a state before its end.
        """
        if self._inside is not None:
            self._inside.name(table, checkpoint=checkpoint)

    def is_being_made(self, hits: Hits) -> bool:
        """Whether a recurrent state in these hits is still to be computed by the step being
        scheduled.
        """
        if not self.in_step:
            return False
        for g in self._states:
            found = hits.found[g]
            if found.num:
                extent, num = found.parts[-1]
                before = found.before if len(found.parts) == 1 else 0
                if (extent.key + before + num - 1, g) in self.in_step:
                    return True
        return False

    # --- what need not be named ----------------------------------------------------------------

    def kept_until(self, table: Table, g: int) -> int:
        """The position in group g from which on blocks that leave the window get no keys."""
        k = self._kind_of.get(g)
        retention = None if k is None else self._retention[k]
        if retention is None:
            return 0
        return retention.kept_until(table.boundaries, table.junction_tokens)

    def known_blocks(self, known: int, g: int) -> int:
        """Number of full blocks of group g in `known` units of registered tokens."""
        return known * self._step // self._sizes.blocks[g]

    def lookable_blocks(self, table: Table, g: int) -> int:
        """Number of leading blocks of group g that other sequences can ever hit."""
        return table.num_shareable // self._units[g]
