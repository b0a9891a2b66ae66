"""`PagedAllocator` where it does not matter which block is whose: blocks are counts.

It holds where nobody watches block ids, and no rule tells blocks apart but by what they hold. Then
of a sequence's blocks only their number is kept, and of those whose content others can name, or it
will find again itself after a preemption, in which pieces they lie. All numbers are those of
`PagedAllocator`, which `tests/memory/paged/test_counted.py` shows.
"""

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import (
    ADMITTED,
    GROWN,
    Admission,
    Allocator,
    Demand,
    Growth,
    Refusal,
)
from kvsim.memory.cohorts import Cohort
from kvsim.memory.ledger import Course, Usage, split_free, usage_of
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.counted.pool import CountedPool, Hits
from kvsim.memory.paged.counted.table import CountedTable
from kvsim.memory.paged.counted.tables import CountedTables
from kvsim.memory.paged.course import BlockMoves, Books
from kvsim.memory.paged.decoders import Decoders
from kvsim.memory.paged.prefix_cache import PrefixCache
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.paged.slot_counts import SlotCounts
from kvsim.memory.parts import CACHED_OUTPUTS, NO_PARTS, Parts
from kvsim.memory.prefix import CacheTotals
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence


def counts_suffice(memory: MemorySpec) -> bool:
    """Whether nobody can tell blocks apart, under rules that only count them as well, and no window
    leaves behind what the one table keeps.
    """
    rules = memory.rules
    asks_more = rules.spare_block or rules.watermark_when_idle or memory.speculation is not None
    windows = any(group.window_tokens is not None for group in memory.layout.groups)
    return memory.unwatched and not asks_more and not windows


@mypyc_attr(allow_interpreted_subclasses=True)
class CountedAllocator(Allocator):
    """The counts. caching, watermark: as of `PagedAllocator`."""

    def __init__(
        self,
        memory: MemorySpec,
        shape: BlockShape,
        *,
        caching: bool,
        watermark: float | None = None,
    ) -> None:
        self._shape = shape
        self.block_size = shape.block_size
        self.capacity_bytes = memory.capacity_bytes
        self.token_bytes = shape.slot_bytes
        share = memory.rules.default_watermark if watermark is None else watermark
        self._watermark_blocks = int(share * shape.num_blocks)
        self.pool = CountedPool(shape.usable_blocks, blank_first=memory.rules.blank_first)
        self._decoders = Decoders(shape.block_size)
        self._counts = SlotCounts()
        self._cache: PrefixCache[Hits] = PrefixCache(
            CountedTables(self.pool), shape.block_size, enabled=caching, lag=memory.hash_lag
        )
        # Slots never to be filled of last blocks that decoders will take, by the clock of that.
        self._last_blocks: dict[int, int] = {}
        self._live: dict[Sequence, None] = {}

    # --- admission -----------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        final = request.prompt_tokens + request.output_tokens - 1
        need = ceil_div(final, self.block_size)
        return self._shape.refusal(need, f"blocks of {self.block_size} tokens")

    def cached_tokens(self, seq: Sequence) -> int:
        return self._cache.hits(seq).num_blocks * self.block_size

    def _blocks_needed(self, hits: Hits, tokens: int, *, busy: bool) -> int:
        """Free blocks that an admission with these hits takes or asks to be there."""
        blocks = max(ceil_div(tokens, self.block_size) - hits.num_blocks, 0)
        return blocks + self.pool.num_free_of(hits) + self._watermark_blocks * busy

    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        hits = self._cache.hits(seq)
        fit_tokens = max(demand.fit_tokens, demand.num_tokens)
        if self._blocks_needed(hits, fit_tokens, busy=demand.busy) > self.pool.num_free:
            return None
        table: CountedTable = seq.memory
        self._live[seq] = None
        if hits.num_blocks:
            self._counts.used -= self.pool.share(table, hits) * self.block_size
            table.registered = hits.num_blocks
        table.blocks = ceil_div(demand.num_tokens, self.block_size)
        self.pool.take(table.blocks - hits.num_blocks)
        self._grown(seq, 0, table.blocks)
        self._filled(seq, table, demand.num_tokens)
        self._cache.admitted(seq, demand.cached_tokens, [])
        return ADMITTED

    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        table: CountedTable = seq.memory
        if turns_before:
            self._cache.turns_before(turns_before, self._decoders.clock)
        before = self._blocks_of(seq, table)
        after = max(before, ceil_div(num_tokens, self.block_size))
        if after - before > self.pool.num_free:
            return None
        if after > before:
            self.pool.take(after - before)
            self._grown(seq, before, after)
            if seq.decoding and after >= ceil_div(seq.final_tokens, self.block_size) > before:
                self._foresee(seq, table, -1)
            table.blocks = after
        if seq.decoding:
            self._decoders.extended.add(seq)
        else:
            self._filled(seq, table, num_tokens)
        return GROWN

    def _blocks_of(self, seq: Sequence, table: CountedTable) -> int:
        """Blocks that a live sequence holds now."""
        if not seq.decoding:
            return table.blocks
        return max(table.blocks, ceil_div(table.base + self._decoders.clock, self.block_size))

    def _grown(self, seq: Sequence, before: int, after: int) -> None:
        """Count the slots that the sequence will never fill in so many blocks."""
        final, size = seq.final_tokens, self.block_size
        if after * size > final:
            self._counts.over += after * size - max(final, before * size)

    def _filled(self, seq: Sequence, table: CountedTable, num_tokens: int) -> None:
        """The first `num_tokens` slots, as far as tokens are known, are valid; their full blocks
        become known content.
        """
        valid = min(num_tokens, seq.num_tokens)
        self._counts.used += valid - table.tokens
        table.tokens = valid
        self._cache.filled(seq, table)

    # --- decoding ------------------------------------------------------------------------------

    def join(self, seq: Sequence, num_tokens: int) -> None:
        table: CountedTable = seq.memory
        self._decoders.join(seq, table, num_tokens)
        self._cache.join(seq, table)
        if table.blocks * self.block_size < seq.final_tokens:
            self._foresee(seq, table, 1)

    def leave(self, seq: Sequence) -> None:
        table: CountedTable = seq.memory
        table.blocks = max(
            table.blocks, ceil_div(table.base + self._decoders.clock, self.block_size)
        )
        if table.blocks * self.block_size < seq.final_tokens:
            self._foresee(seq, table, -1)
        self._cache.leave(seq, table)
        self._decoders.leave(seq, table)

    def _foresee(self, seq: Sequence, table: CountedTable, sign: int) -> None:
        """A decoder will take its last block, or, sign -1, will not, or has taken it already."""
        size = self.block_size
        last = ceil_div(seq.final_tokens, size)
        over = last * size - seq.final_tokens
        if over:
            clock = (last - 1) * size - table.base
            left = self._last_blocks.get(clock, 0) + sign * over
            if left:
                self._last_blocks[clock] = left
            else:
                del self._last_blocks[clock]

    def must_extend(self) -> list[Sequence]:
        return self._decoders.without_room()

    def steps_that_fit(self, limit: int) -> int:
        return self._decoders.steps_within(self.pool.num_free, limit)

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        hits = self._cache.hits(head)
        if self._cache.may_become_admissible(head, hits.num_blocks):
            return 0
        spare = self.pool.num_free - self._blocks_needed(hits, head.num_tokens, busy=busy)
        return limit if spare < 0 else self._decoders.steps_within(spare, limit)

    def advance(self, steps: int) -> Course:
        slope = self._decoders.num * self.token_bytes
        moves = BlockMoves(self._shape, self._books, slope)
        for t, cohort in self._decoders.block_starts(steps):
            self._start_blocks(t, cohort)
            moves.at(t)
        self._cache.advanced(self._decoders.clock, steps)
        self._decoders.advance(steps)
        self._counts.used += self._decoders.num * steps
        return moves.course()

    def _books(self) -> Books:
        pool, size = self.pool, self.token_bytes
        over = self._counts.over * size
        pad = (self._shape.usable_blocks - pool.num_free) * self._shape.pad_bytes
        cached, outputs = pool.num_cached_free, pool.num_outputs
        return pool.num_free, cached, 0, over, pad, 0, outputs, 0, 0

    def step(self) -> None:
        decoders = self._decoders
        cohort = decoders.at(decoders.clock)
        if cohort:
            self._start_blocks(1, cohort)
        self._cache.advanced(decoders.clock)
        decoders.advance(1)
        self._counts.used += decoders.num

    def _start_blocks(self, t: int, cohort: Cohort) -> None:
        """Every sequence of `cohort` takes its next block at step t."""
        decoders, count = self._decoders, len(cohort)
        if t == 1 and decoders.extended:
            count = sum(seq not in decoders.extended for seq in cohort)
        self._counts.over += self._last_blocks.pop(decoders.clock + t - 1, 0)
        self.pool.take(count)

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        table: CountedTable = seq.memory
        del self._live[seq]
        known = self._cache.released(seq, table)
        wanted = table.num_shareable if seq.finished else known
        shared = self.pool.give_back(table, known, wanted, seq.prompt_tokens // self.block_size)
        self._counts.used += shared * self.block_size - table.tokens
        slots = table.blocks * self.block_size
        if slots >= seq.final_tokens:
            self._counts.over -= slots - seq.final_tokens

    # --- the ledger ----------------------------------------------------------------------------

    def granted_tokens(self, seq: Sequence) -> int:
        return self._blocks_of(seq, seq.memory) * self.block_size if seq.memory else 0

    def shared_tokens(self, seq: Sequence) -> int:
        shared = self.pool.num_leading_shared(seq.memory)
        return min(shared * self.block_size, self._decoders.slots(seq))

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        blocks = ceil_div(tokens - self.granted_tokens(seq), self.block_size)
        return max(0, blocks) * self.block_size

    def cache_totals(self) -> CacheTotals:
        return self._cache.totals

    @property
    def saved_bytes(self) -> int | None:
        return self.pool.num_shared * self._shape.block_bytes

    @property
    def tells_cached(self) -> bool:
        return True

    @property
    def parts(self) -> Parts:
        outputs = self.pool.num_outputs
        if not outputs:
            return NO_PARTS
        return ((CACHED_OUTPUTS, outputs * self._shape.block_bytes),)

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        shape, pool = self._shape, self.pool
        block_bytes, num_free = shape.block_bytes, pool.num_free
        held = shape.usable_blocks - num_free
        used, over = self._counts.used * self.token_bytes, self._counts.over * self.token_bytes
        cached = pool.num_cached_free * block_bytes
        pad = held * shape.pad_bytes
        need = None
        if head is not None:
            hits = self._cache.hits(head)
            need = self._blocks_needed(hits, head.num_tokens, busy=busy) * block_bytes
        free = split_free(num_free * block_bytes - cached, cached, need, placeable=True)
        reserved = held * block_bytes - used - over - pad
        return usage_of((used, reserved, over, pad, cached, 0, shape.metadata_bytes, *free))

    def check(self) -> None:
        size, pool = self.block_size, self.pool
        held = {seq: self._blocks_of(seq, seq.memory) for seq in self._live}
        pool.check((seq.memory for seq in self._live), sum(held.values()))
        used = sum(map(self._decoders.slots, self._live)) - pool.num_shared * size
        over = sum(max(0, blocks * size - seq.final_tokens) for seq, blocks in held.items())
        found = SlotCounts(used, over)
        if found != self._counts:
            raise InvariantError(f"slots of live sequences are {found}, counted as {self._counts}")
