"""`PagedAllocator` where it does not matter which block is whose: blocks are counts.

It holds where no prompt can be named by another request, every request is one sequence, and nobody
watches block ids. Then a sequence finds nothing in the prefix cache but, preempted, what is left of
its own blocks; and of the pool only numbers can be seen. All numbers are those of `PagedAllocator`,
which `tests/memory/paged/test_counted.py` shows.
"""

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import (
    ADMITTED,
    GROWN,
    Admission,
    Allocator,
    CacheTotals,
    Demand,
    Growth,
    Refusal,
)
from kvsim.memory.cohorts import Cohort
from kvsim.memory.ledger import Course, Usage, split_free
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.counted.pool import CountedPool, Run, kept_in
from kvsim.memory.paged.course import block_course
from kvsim.memory.paged.decoders import Decoders
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.paged.slot_counts import SlotCounts
from kvsim.memory.paged.table import Table
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
    return memory.anonymous and not asks_more and not windows


class CountedTable(Table):
    """blocks: how many a sequence holds, or held when it began to decode. kept: of a preempted one,
    what it left in the free queue, oldest first.
    """

    __slots__ = ("blocks", "kept")

    def __init__(self, kept: list[Run]) -> None:
        super().__init__(KeyRuns(), 0)
        self.blocks = 0
        self.kept = kept


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
        self._caching = caching
        self._lag = memory.hash_lag
        self.block_size = shape.block_size
        self.capacity_bytes = memory.capacity_bytes
        self.token_bytes = shape.slot_bytes
        share = memory.rules.default_watermark if watermark is None else watermark
        self._watermark_blocks = int(share * shape.num_blocks)
        self._pool = CountedPool(shape.usable_blocks, blank_first=memory.rules.blank_first)
        self._decoders = Decoders(shape.block_size)
        self._counts = SlotCounts()
        # Slots never to be filled of last blocks that decoders will take, by the clock of that.
        self._last_blocks: dict[int, int] = {}
        self._live: dict[Sequence, None] = {}
        self._query_tokens = 0
        self._hit_tokens = 0

    # --- admission -----------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        final = request.prompt_tokens + request.output_tokens - 1
        need = ceil_div(final, self.block_size)
        return self._shape.refusal(need, f"blocks of {self.block_size} tokens")

    def _hits(self, seq: Sequence) -> int:
        """Blocks of its own that a preempted `seq` finds again."""
        table: CountedTable | None = seq.memory
        if table is None or not table.kept:
            return 0
        return kept_in(table.kept, (seq.num_tokens - 1) // self.block_size)

    def cached_tokens(self, seq: Sequence) -> int:
        return self._hits(seq) * self.block_size

    def _blocks_needed(self, tokens: int, *, busy: bool) -> int:
        """Free blocks an admission takes, hits too, or asks to be there."""
        return ceil_div(tokens, self.block_size) + self._watermark_blocks * busy

    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        fit_tokens = max(demand.fit_tokens, demand.num_tokens)
        if self._blocks_needed(fit_tokens, busy=demand.busy) > self._pool.num_free:
            return None
        hits = self._hits(seq)
        table: CountedTable = seq.memory or CountedTable([])
        seq.memory = table
        if hits:
            self._pool.claim(table.kept, hits)
        self._live[seq] = None
        table.blocks = ceil_div(demand.num_tokens, self.block_size)
        self._pool.take(table.blocks - hits)
        self._grown(seq, 0, table.blocks)
        self._filled(seq, table, demand.num_tokens)
        if self._caching and not seq.num_preemptions:  # vLLM counts resumptions apart
            self._query_tokens += seq.num_tokens
            self._hit_tokens += demand.cached_tokens
        return ADMITTED

    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        table: CountedTable = seq.memory
        before = self._blocks_of(seq, table)
        after = max(before, ceil_div(num_tokens, self.block_size))
        if after - before > self._pool.num_free:
            return None
        if after > before:
            self._pool.take(after - before)
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
        """The first `num_tokens` slots, as far as tokens are known, are valid."""
        valid = min(num_tokens, seq.num_tokens)
        self._counts.used += valid - table.tokens
        table.tokens = valid

    # --- decoding ------------------------------------------------------------------------------

    def join(self, seq: Sequence, num_tokens: int) -> None:
        table: CountedTable = seq.memory
        self._decoders.join(seq, table, num_tokens)
        if table.blocks * self.block_size < seq.final_tokens:
            self._foresee(seq, table, 1)

    def leave(self, seq: Sequence) -> None:
        table: CountedTable = seq.memory
        table.blocks = max(
            table.blocks, ceil_div(table.base + self._decoders.clock, self.block_size)
        )
        if table.blocks * self.block_size < seq.final_tokens:
            self._foresee(seq, table, -1)
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
        return self._decoders.steps_within(self._pool.num_free, limit)

    def steps_alike(self, head: Sequence, limit: int, *, busy: bool) -> int:
        spare = self._pool.num_free - self._blocks_needed(head.num_tokens, busy=busy)
        return limit if spare < 0 else self._decoders.steps_within(spare, limit)

    def advance(self, steps: int) -> Course:
        moments = [
            (t, *self._start_blocks(t, cohort)) for t, cohort in self._decoders.block_starts(steps)
        ]
        self._decoders.advance(steps)
        num = self._decoders.num
        self._counts.used += num * steps
        slope = num * self.token_bytes
        return block_course(self._shape, Usage(slope, -slope), moments)

    def step(self) -> None:
        decoders = self._decoders
        cohort = decoders.at(decoders.clock)
        if cohort:
            self._start_blocks(1, cohort)
        decoders.advance(1)
        self._counts.used += decoders.num

    def _start_blocks(self, t: int, cohort: Cohort) -> tuple[int, int, int]:
        """Every sequence of `cohort` takes its next block at step t. Returns how many did, how many
        of these blocks held content, and how many of their slots will never be filled.
        """
        decoders, count = self._decoders, len(cohort)
        if t == 1 and decoders.extended:
            count = sum(seq not in decoders.extended for seq in cohort)
        over = self._last_blocks.pop(decoders.clock + t - 1, 0)
        self._counts.over += over
        return count, self._pool.take(count), over

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        table: CountedTable = seq.memory
        del self._live[seq]
        blocks = table.blocks
        self._counts.used -= table.tokens
        slots = blocks * self.block_size
        if slots >= seq.final_tokens:
            self._counts.over -= slots - seq.final_tokens
        if seq.finished:
            full = table.tokens // self.block_size if self._caching else 0
            self._pool.give_back(full, blocks - full)
            seq.memory = None
        else:
            full = self._known(table) // self.block_size if self._caching else 0
            left = [run for run in table.kept if run.num]
            seq.memory = CountedTable([*left, self._pool.keep(full, blocks - full)])

    def _known(self, table: CountedTable) -> int:
        """Slots whose content is known, as `PrefixCache.known` tells."""
        decoded = table.tokens > table.returned > 0
        return table.tokens - self._lag * decoded

    # --- the ledger ----------------------------------------------------------------------------

    def granted_tokens(self, seq: Sequence) -> int:
        return self._blocks_of(seq, seq.memory) * self.block_size if seq.memory else 0

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        blocks = ceil_div(tokens - self.granted_tokens(seq), self.block_size)
        return max(0, blocks) * self.block_size

    def cache_totals(self) -> CacheTotals:
        return CacheTotals(self._query_tokens, self._hit_tokens)

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        shape, pool = self._shape, self._pool
        block_bytes, num_free = shape.block_bytes, pool.num_free
        held = shape.usable_blocks - num_free
        used, over = self._counts.used * self.token_bytes, self._counts.over * self.token_bytes
        cached = pool.num_cached_free * block_bytes
        pad = held * shape.pad_bytes
        need = None
        if head is not None:
            need = self._blocks_needed(head.num_tokens, busy=busy) * block_bytes
        free = split_free(num_free * block_bytes - cached, cached, need, placeable=True)
        reserved = held * block_bytes - used - over - pad
        return Usage(used, reserved, over, pad, cached, 0, shape.metadata_bytes, *free)

    def check(self) -> None:
        size = self.block_size
        held = {seq: self._blocks_of(seq, seq.memory) for seq in self._live}
        self._pool.check(sum(held.values()))
        used = sum(map(self._decoders.slots, self._live))
        over = sum(max(0, blocks * size - seq.final_tokens) for seq, blocks in held.items())
        found = SlotCounts(used, over)
        if found != self._counts:
            raise InvariantError(f"slots of live sequences are {found}, counted as {self._counts}")
