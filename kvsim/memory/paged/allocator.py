"""Paged KV memory as vLLM keeps it: blocks of one pool, block tables, prefix cache.

Semantics of vLLM 0.33 (v1/core/kv_cache_manager.py, kv_cache_coordinator.py and
single_type_kv_cache_manager.py). All groups of layers (see groups/grouping.py) draw blocks of one
size from one pool, each into its own block table; most models are one group, which keeps every
token. Before a sequence takes memory for new tokens, groups with a window of W tokens give back the
blocks that lie below its last `computed - W + 1` tokens; content stays cached, as when a sequence
leaves. A hit must be one in every group: the run of blocks cached for full attention, shortened
until each window has the blocks just below its end cached too. A recurrent state takes one block
while its sequence runs, and more if states are cached.

What differs between versions stands in `BlockRules`. The cache, the decoders, the samples that
share a prompt and the tier in host memory are parts of their own. Nothing is touched per sequence
per step: decoders advance together, in cohorts that start new blocks in the same steps.
"""

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import (
    ADMITTED,
    GROWN,
    Admission,
    Demand,
    Growth,
    Refusal,
)
from kvsim.memory.ledger import Course
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.assembly import Assembly, PagedSettings
from kvsim.memory.paged.books import BlockLedger
from kvsim.memory.paged.hits import Hits
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.paged.table import Table
from kvsim.memory.paged.verifying import VerifyingMembers
from kvsim.memory.timed import Timed
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence
from kvsim.vllm.grouping import Grouping


@mypyc_attr(allow_interpreted_subclasses=True)
class PagedAllocator(BlockLedger):
    """Block tables over one pool, one table for each group of layers. A sequence must be released
    before it is admitted again.
    """

    def __init__(
        self, memory: MemorySpec, shape: BlockShape, grouping: Grouping, settings: PagedSettings
    ) -> None:
        parts = Assembly(memory, shape, grouping, settings)
        super().__init__(memory, shape, parts)
        self.swappable = not parts.tables.slides and not parts.has_states
        self.gives_back = not parts.one_table
        self._names, self._drafts, self._chunks = parts.names, parts.drafts, parts.chunks
        self._spare_block = memory.rules.spare_block
        self._window_lag = memory.hash_lag if memory.rules.waits_for_return else 0
        self._plants = memory.rules.plants_junctions
        if memory.speculation is not None and parts.sizes.same and self._behind is None:
            self._verifying = VerifyingMembers(
                self.pool,
                self._tables,
                self._decoding,
                self._cache,
                self._sizes,
                self._drafts,
                memory.hash_lag,
                token_bytes=self.token_bytes,
                waits=self._waits,
                lazy=settings.eviction is None and not parts.has_states,
            )
        self._steps = 0  # scheduled so far; a run of steps counts as two at most
        self._put_off = False  # the head of the queue waits for a state in computation
        self._let_go = False  # copies freed blocks after the last step was scheduled

    @property
    def timed(self) -> Timed | None:
        return self.pool.timed

    @property
    def verifying(self) -> VerifyingMembers | None:
        return self._verifying

    # --- admission -----------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        return self._needs.refusal(request)

    def cached_tokens(self, seq: Sequence) -> int:
        return self._needs.cached_tokens(seq)

    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        forks = self._forks
        if forks is not None and forks.prompt_is_coming(seq):
            return None
        hits = self._needs.hits(seq)
        self._put_off = self._names.is_being_made(hits)
        if self._put_off or self._needs.lacks(seq, hits, demand):
            return None
        host_keys = self._needs.host_keys(seq, hits)
        table: Table = seq.memory
        table.prompt_tokens = seq.prompt_tokens
        table.boundaries = self._names.boundaries(seq.prompt_tokens)
        table.junction_tokens = self._junction(hits)
        self._live[seq] = None
        self._tables.open(table, hits)
        self._tables.grown(seq.final_tokens, 0, table.count)
        checkpoint = self._needs.leaves_checkpoint(seq, table.tokens, demand.num_tokens)
        units, states = self._room(demand.num_tokens)
        self._decoding.grow(seq, table, units, states, checkpoint=checkpoint)
        self._filled(seq, table, demand.num_tokens, checkpoint=checkpoint)
        table.computed = demand.cached_tokens
        if forks is not None:
            forks.admitted(seq, hits.found[0])
        loaded_bytes = self._cache.admitted(seq, demand.cached_tokens, host_keys)
        return Admission(loaded_bytes) if loaded_bytes else ADMITTED

    def _room(self, num_tokens: int) -> tuple[int, int]:
        """Units of token tables, and positions of state tables, for a step up to slot
        `num_tokens`.
        """
        units = ceil_div(self._drafts.room(num_tokens), self._sizes.unit)
        return units, self._tables.states_for(num_tokens)

    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        """See `Allocator.extend`; blocks below a window are freed even if there is no room."""
        table: Table = seq.memory
        decoding, clock = seq.decoding, self._decoders.clock
        if turns_before:
            self._cache.turns_before(turns_before, clock)
        if decoding and self._spare_block and not self.pool.num_free:
            return None
        if self._forks is not None and not self._forks.make_room(seq, num_tokens):
            return None
        if self._tables.slides:
            computed = self._decoding.computed(table, clock) if decoding else table.tokens
            if self._window_lag and not decoding and table.scheduled == self._steps - 1:
                computed = table.processed
            self._tables.give_back_below(table, computed)
        elif decoding:
            self._decoding.catch_up(seq)
        units, states = self._room(num_tokens)
        checkpoint = not decoding and self._needs.leaves_checkpoint(seq, table.tokens, num_tokens)
        need = self._tables.missing(table, units, states, checkpoint=checkpoint)
        if need > self.pool.num_free:
            return None
        self._decoding.grow(seq, table, units, states, checkpoint=checkpoint)
        if decoding:
            self._decoders.extended.add(seq)
        else:
            table.processed = table.tokens
            self._filled(seq, table, num_tokens, checkpoint=checkpoint)
        return GROWN

    def await_steps(self, seq: Sequence) -> None:
        table: Table = seq.memory
        table.processed = table.tokens

    def _filled(self, seq: Sequence, table: Table, num_tokens: int, *, checkpoint: bool) -> None:
        """The first `num_tokens` slots are valid, as far as their tokens are known; full blocks of
        them become known content.
        """
        self._valid(table, num_tokens, min(num_tokens, seq.num_tokens))
        table.scheduled = self._steps
        self._cache.filled(seq, table)
        self._names.name_inside(table, checkpoint=checkpoint)

    def _valid(self, table: Table, num_tokens: int, valid_tokens: int) -> None:
        """Set the valid slots among those up to `num_tokens` and those of the next drafts."""
        self._tables.used_bytes += (valid_tokens - table.tokens) * self.token_bytes
        table.computed, table.tokens = table.tokens, valid_tokens
        self._tables.drafting(table, self._drafts.unused(num_tokens, valid_tokens))

    # --- drafts --------------------------------------------------------------------------------

    def verify(
        self,
        seq: Sequence,
        num_tokens: int,
        returned_tokens: int,
        known_tokens: int,
        valid_tokens: int,
    ) -> bool:
        """See `Allocator.verify`; blocks below a window are freed even if there is no room."""
        table: Table = seq.memory
        computed = table.computed
        self._tables.give_back_below(table, returned_tokens)
        units, states = self._room(num_tokens)
        if self._tables.missing(table, units, states, checkpoint=False) > self.pool.num_free:
            return False
        self._decoding.grow(seq, table, units, states)
        self._valid(table, num_tokens, valid_tokens)
        table.computed = computed
        if known_tokens >= table.cover_at:
            self._cache.cover(table, min(num_tokens, known_tokens), known_tokens)
        return True

    def _waits(self, head: Sequence) -> tuple[bool, bool] | None:
        """Whether `head`, which could not start beside others, may lack blocks, and whether it has
        hits; None: the end of its wait cannot be predicted.
        """
        hits = self._needs.hits(head)
        if self._put_off or self._cache.may_become_admissible(head, 0):
            return None
        tokens, free = head.num_tokens, self.pool.num_free
        lacking = self._needs.need(head, hits, tokens, whole=True, busy=True) > free
        lacking = lacking or self._needs.need(head, hits, tokens, whole=False, busy=True) > free
        return lacking, hits.tokens > 0 or hits.junction > 0

    def checkpoint(self, seq: Sequence, num_tokens: int) -> None:
        if self._drafts.speculates and num_tokens >= seq.memory.cover_at - 1:
            self._cache.cover(seq.memory, num_tokens, num_tokens + 1, in_step=False)

    # --- decoding ------------------------------------------------------------------------------

    def join(self, seq: Sequence, num_tokens: int) -> None:
        self._decoding.join(seq, num_tokens)

    def leave(self, seq: Sequence) -> None:
        self._decoding.leave(seq)
        seq.memory.scheduled = self._steps - 1  # its last token may still be in flight

    def must_extend(self) -> list[Sequence]:
        return self._decoding.must_extend()

    def steps_that_fit(self, limit: int) -> int:
        return self._decoding.steps_that_fit(limit)

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        hits = self._needs.hits(head)
        free = self.pool.num_free
        spare = free - self._needs.need_of_head(head, hits, busy=busy)
        if self._decoding.even:
            if self._cache.may_become_admissible(head, hits.tokens // self.block_size):
                return 0
            if spare >= 0:
                limit = self._decoding.steps_within(spare, limit)
            if self._cache.has_host and len(self._cache.table_of(head).runs):
                # A block that is taken may evict content of `head` from the host tier.
                return self._decoding.steps_within(0, limit)
            return limit
        return self._steps_blocked_one_by_one(head, hits, limit, spare, busy=busy)

    def _steps_blocked_one_by_one(
        self, head: Sequence, hits: Hits, limit: int, spare: int, *, busy: bool
    ) -> int:
        """`steps_head_stays_blocked` if blocks are freed while sequences run. If the head has hits,
        which an allocation could evict, or fits in all but not chunk by chunk, it holds only until
        the next block is taken or freed.
        """
        unsettled = self._put_off or self._let_go or self._decoding.copying
        if unsettled or self._cache.may_become_admissible(head, 0):
            return 0
        free = self.pool.num_free
        most = self._needs.need(head, hits, head.num_tokens, whole=False, busy=busy)
        known = hits.tokens > 0 or hits.junction > 0
        # If all free blocks are cached, the ledger does not show which block is blank next.
        unknown_next = spare < 0 and free == self.pool.num_cached_free
        delicate = known or unknown_next or (spare >= 0 and most > free)
        return self._decoding.forecast.steps_head_stays_blocked(spare, limit, delicate=delicate)

    def advance(self, steps: int) -> Course:
        return self._decoding.advance(steps, self._live)

    def step(self) -> None:
        self._decoding.step()

    def step_decided(self) -> None:
        self._steps += 1
        free = self.pool.num_free
        self._tables.decided()
        self._let_go = self.pool.num_free > free

    @property
    def chunk_tokens(self) -> int:
        return 1 if self._chunks is None else self._sizes.least

    def cut_chunk(self, seq: Sequence, start_tokens: int, new_tokens: int, most_tokens: int) -> int:
        if self._chunks is None:
            return new_tokens
        table: Table = seq.memory
        live = seq in self._live
        junction = table.junction_tokens if live else self._junction(self._cache.hits(seq))
        return self._chunks.cut(seq, start_tokens, new_tokens, most_tokens, junction)

    def _junction(self, hits: Hits) -> int:
        """Tokens after which others diverged, 0 unless the version caches something there."""
        return hits.junction if self._plants else 0

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        if self._forks is not None:
            self._forks.leave(seq)
        table: Table = seq.memory
        del self._live[seq]
        known = self._cache.released(seq, table)
        self._tables.close(table, known if seq.finished else 0)
        self._tables.closed(table, seq.final_tokens)
