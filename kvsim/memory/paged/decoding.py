"""Decoding sequences with block tables: the blocks that they allocate and free in each step.

Also the number of steps for which the free blocks suffice.

The even case: no table frees blocks while its sequence runs, and all blocks hold the same number of
tokens. A sequence that starts a block then starts one in every group of layers. Cohorts take blocks
together, and the number of steps has a closed form. In the other cases steps are predicted one by
one. If several sequences take and free blocks in a step, each frees before it takes, in running
order.
"""

from collections.abc import Iterable

from kvsim.memory.cohorts import Cohort
from kvsim.memory.ledger import Course
from kvsim.memory.paged.block_shape import BlockShape
from kvsim.memory.paged.blocks import Table
from kvsim.memory.paged.decoders import Decoders
from kvsim.memory.paged.forecast import BlockMoves, Forecast, Windows
from kvsim.memory.paged.forks import Forks
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.prefix_cache import PrefixCache
from kvsim.memory.paged.tables import BlockTables
from kvsim.memory.paged.window_waste import BehindInBlocks
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence, by_order
from kvsim.vllm.sizes import Sizes


class Decoding:
    """Moves blocks between `pool` and `tables` while sequences decode.

    decoders: the decoding sequences. even: see above. counts: only the number of blocks taken is
    tracked, so a table must `catch_up` before it is read. copying: sequences with a copy at the
    start of their next step. behind: slots outside windows if every layer stores every token; None
    without windows. forks: samples that share blocks by copy on write; None without. spare_block:
    see BlockRules. lag: MemorySpec's hash_lag. token_bytes: bytes of one slot, all layers together.
    ranked: an eviction policy is set, so it matters whether content is cached before a block is
    taken.
    """

    def __init__(
        self,
        shape: BlockShape,
        pool: BlockPool,
        tables: BlockTables,
        cache: PrefixCache,
        sizes: Sizes,
        decoders: Decoders,
        behind: BehindInBlocks | None,
        forks: Forks | None,
        *,
        lag: int,
        token_bytes: int,
        spare_block: bool,
        ranked: bool,
    ) -> None:
        self._shape, self._pool = shape, pool
        self._tables, self._shapes = tables, tables.shapes
        self._cache, self._unit, self._lag, self._token_bytes = cache, sizes.unit, lag, token_bytes
        self._behind, self._forks = behind, forks
        self._spare_block, self._ranked = spare_block, ranked
        self.decoders = decoders
        self.even = not tables.shapes.slides and sizes.unit == sizes.whole
        self.counts = self.even and tables.counts_units and forks is None
        # Bytes never to be filled in the last blocks of decoders, by the clock at which these are
        # taken.
        self._last_blocks: dict[int, int] = {}
        self._windows = Windows(tables.shapes.reaches, sizes.blocks, lag)
        self.forecast = Forecast(pool, tables.shapes, decoders, self._windows, sizes)
        self.copying: dict[Sequence, None] = {}

    def join(self, seq: Sequence, num_tokens: int, returned: int) -> None:
        """`seq`, with `num_tokens` valid slots, decodes from the next step on. returned: those of
        its slots from steps that have returned then.
        """
        table: Table = seq.memory
        table.processed, table.since = returned, self.decoders.clock
        self.decoders.join(seq, table, num_tokens, in_flight=returned < num_tokens)
        self._cache.join(seq, table)
        if self.counts:
            if table.count * self._unit < seq.final_tokens:
                self._foresee_last(seq, table, 1)
        elif not self.even:
            self._windows.join(seq, table.base, self.decoders.clock, table.skipped)
            if table.copied:
                self.copying[seq] = None

    def leave(self, seq: Sequence) -> None:
        """`seq` stops decoding."""
        table: Table = seq.memory
        if self.counts:
            self._catch_up(table)
            if table.count * self._unit < seq.final_tokens:
                self._foresee_last(seq, table, -1)
        self._cache.leave(seq, table)
        self.decoders.leave(seq, table)
        if table.tokens > table.joined:
            table.computed = table.tokens - 1
        if not self.even:
            self.copying.pop(seq, None)
            self._windows.leave(seq, table.base)

    def catch_up(self, seq: Sequence) -> None:
        """Write the blocks taken so far for a live sequence to its table."""
        if self.counts and seq.decoding:
            self._catch_up(seq.memory)

    def _catch_up(self, table: Table) -> None:
        table.count = max(table.count, ceil_div(table.base + self.decoders.clock, self._unit))

    def _foresee_last(self, seq: Sequence, table: Table, sign: int) -> None:
        """Plan the last block that a decoder will take. sign: 1 to add it to the plan; -1 to remove
        it.
        """
        if table.last_slot < 0:
            last = ceil_div(seq.final_tokens, self._unit)
            table.last_slot = (last - 1) * self._unit
            table.last_unfilled = self._tables.unfilled_bytes(last, seq.final_tokens)
        unfilled = table.last_unfilled
        if unfilled:
            clock = table.last_slot - table.base
            left = self._last_blocks.get(clock, 0) + sign * unfilled
            if left:
                self._last_blocks[clock] = left
            else:
                del self._last_blocks[clock]

    def computed(self, table: Table, clock: int) -> int:
        """Slots of a decoder from steps that have returned when the step at `clock` is
        scheduled.
        """
        if self._lag and clock == table.since:
            return table.processed
        return table.base + clock - self._lag

    def grow(
        self,
        seq: Sequence,
        table: Table,
        count: int,
        states: int,
        *,
        checkpoint: bool = False,
        loaded_tokens: int = 0,
    ) -> None:
        """Allocate blocks for a table, whether its sequence decodes or not: see
        `BlockTables.grow`.
        """
        if count > table.count:
            self._tables.grown(seq.final_tokens, table.count, count)
            if self.counts and seq.decoding:
                final = seq.final_tokens
                if count * self._unit >= final > table.count * self._unit:
                    self._foresee_last(seq, table, -1)
        self._tables.grow(table, count, states, checkpoint=checkpoint, loaded_tokens=loaded_tokens)
        if self.copying:
            self.copying.pop(seq, None)

    # --- who must be asked ---------------------------------------------------------------------

    def must_extend(self) -> list[Sequence]:
        """Sequences that take or free a block in the next step, in running order."""
        decoders = self.decoders
        if self._spare_block:
            return decoders.not_extended()
        if self.even:
            waiting = decoders.without_room()
            copying = self._forks.copying() if self._forks is not None else ()
            return sorted({*waiting, *copying}, key=by_order) if copying else waiting
        due = decoders.at(decoders.clock) | self._windows.givers(decoders.clock) | self.copying
        return sorted(due.keys() - decoders.extended, key=by_order)

    def steps_that_fit(self, limit: int) -> int:
        """See `Allocator.steps_that_fit`."""
        free = self._pool.num_free
        if self.even:
            if self._spare_block:  # no sequence lacks a block while one is free
                return self.steps_within(free - 1, limit) if free else 0
            return self.steps_within(free, limit)
        if self.copying:
            copies = sum(len(seq.memory.copied) for seq in self.copying)
            need = self._shapes.most_new_blocks * self.decoders.num + copies
            return int(need <= free)
        return self.forecast.steps_that_fit(limit)

    def steps_within(self, blocks: int, limit: int) -> int:
        """Number of steps for which `blocks` blocks suffice in the even case."""
        if self._forks is not None:
            blocks -= len(self._forks.copying())
            if blocks < 0:
                return 0
        each = self._shapes.most_new_blocks
        return self.decoders.steps_within(blocks // each, limit) if each else limit

    # --- steps ---------------------------------------------------------------------------------

    def advance(self, steps: int, live: Iterable[Sequence]) -> Course:
        """All decoders take one slot in each of `steps` steps. live: sequences with memory."""
        if self._forks is not None:
            self._forks.advance()
        behind = self._behind
        decoders = behind.decoders(live) if behind is not None else []
        token_bytes, slope = self._token_bytes, self.decoders.num
        moves = BlockMoves(
            self._shape, self._pool, self._tables, token_bytes, slope, gives_back=not self.even
        )
        if self.even:
            self._advance_evenly(steps, moves)
        else:
            self._advance_one_by_one(steps, moves)
        self._tables.used_bytes += token_bytes * slope * steps
        course = moves.course()
        return behind.during(course, decoders, steps) if behind is not None and decoders else course

    def step(self) -> None:
        """`advance(1)` without the change of the ledger."""
        decoders = self.decoders
        if not self.even or self._forks is not None:
            self.advance(1, ())
            return
        cohort = decoders.at(decoders.clock)
        if cohort:
            self._start_blocks(1, cohort)
        self._cache.advanced(decoders.clock)
        decoders.advance(1)
        self._tables.used_bytes += decoders.num * self._token_bytes

    def _advance_evenly(self, steps: int, moves: BlockMoves) -> None:
        decoders, known = self.decoders, 0  # steps with their filled blocks registered
        for t, cohort in decoders.block_starts(steps):
            if self._ranked:
                self._cache.advanced(decoders.clock + known, t - 1 - known)
                known = t - 1
            self._start_blocks(t, cohort)
            moves.at(t)
        self._cache.advanced(decoders.clock + known, steps - known)
        decoders.advance(steps)

    def _start_blocks(self, t: int, cohort: Cohort) -> None:
        """Each sequence of `cohort` takes its next blocks at step t."""
        if self.counts:
            self._count_blocks(t, cohort)
            return
        members = sorted(cohort, key=by_order) if len(cohort) > 1 else list(cohort)
        decoders, tables = self.decoders, self._tables
        if t == 1 and decoders.extended:
            members = [seq for seq in members if seq not in decoders.extended]
            if not members:
                return
        self._tables.start_units([seq.memory for seq in members])
        for seq in members:
            count: int = seq.memory.count
            if count * self._unit >= seq.final_tokens:
                tables.grown(seq.final_tokens, count - 1, count)
        table: Table = members[0].memory
        if table.count * self._unit < table.base + decoders.clock + t:
            raise InvariantError(f"{members[0]} decodes into a slot it does not hold")

    def _count_blocks(self, t: int, cohort: Cohort) -> None:
        """`_start_blocks` if only the number of blocks is tracked."""
        decoders, count = self.decoders, len(cohort)
        if t == 1 and decoders.extended:
            count = sum(seq not in decoders.extended for seq in cohort)
        self._tables.over_bytes += self._last_blocks.pop(decoders.clock + t - 1, 0)
        self._tables.take_units(count)

    def _advance_one_by_one(self, steps: int, moves: BlockMoves) -> None:
        start = self.decoders.clock
        for t, clock in enumerate(range(start, start + steps), start=1):
            if self._move(clock):
                moves.at(t)
            self._cache.advanced(clock)
        self.decoders.advance(steps)

    def _move(self, clock: int) -> bool:
        """The step at `clock`: each sequence frees blocks, then takes blocks. Returns whether any
        did.
        """
        decoders = self.decoders
        members = decoders.at(clock) | self._windows.givers(clock) | self.copying
        if clock == decoders.clock:
            members = {seq: None for seq in members if seq not in decoders.extended}
            decoders.extended.clear()
        give_back_below, unit = self._tables.give_back_below, self._unit
        for seq in sorted(members, key=by_order) if len(members) > 1 else members:
            table: Table = seq.memory
            give_back_below(table, self.computed(table, clock))
            slots = table.base + clock
            if slots % unit == 0:  # the step starts a new unit, and so a block of some groups
                self.grow(seq, table, table.count + 1, self._shapes.states_for(slots + 1))
            elif table.copied:
                self.grow(seq, table, table.count, table.states)
        self._windows.passed(clock)
        return bool(members)
