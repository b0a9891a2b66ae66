"""Paged KV memory as vLLM keeps it: blocks of one pool, block tables, prefix cache.

Semantics of vLLM 0.33 (v1/core/kv_cache_manager.py, kv_cache_coordinator.py and
single_type_kv_cache_manager.py). All groups of layers (see vllm/grouping.py) allocate blocks of one
size from one pool, each into its own block table. Most models are one group, which keeps every
token. Before a sequence allocates blocks for new tokens, groups with a window of W tokens free the
blocks before its last W - 1 computed tokens. Their content stays cached, as when a sequence leaves.
A hit must be one in every group. The run of blocks cached for full attention is shortened until
each window has the blocks just before its end cached too. A recurrent state takes one block while
its sequence runs, and more if states are cached.

`BlockRules` holds the differences between versions. The cache, the decoders, the samples that share
a prompt and the tier in host memory are parts of their own. Nothing is touched per sequence per
step: decoders advance together, in cohorts that start new blocks in the same steps.
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
from kvsim.memory.paged.blocked_head import BlockedHead
from kvsim.memory.paged.blocks import Table
from kvsim.memory.paged.books import BlockLedger
from kvsim.memory.paged.hits import Hits
from kvsim.memory.paged.shape import BlockShape
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
        self.swappable = not parts.tables.shapes.slides and not parts.has_states
        self.gives_back = not parts.one_table
        self._names, self._drafts, self._chunks = parts.names, parts.drafts, parts.chunks
        self._spare_block = memory.rules.spare_block
        self._ahead, self._waits_for_return = memory.steps_ahead, memory.rules.waits_for_return
        self._plants = memory.rules.plants_junctions
        self._blocked = BlockedHead(self.pool, self._needs, self._cache, self._decoding)
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
                waits=self._blocked.waits,
                lazy=settings.eviction is None and not parts.has_states,
            )
        self._steps = 0  # scheduled so far; a run of steps counts as two at most

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
        self._blocked.put_off = self._names.is_being_made(hits)
        if self._blocked.put_off or self._needs.lacks(seq, hits, demand):
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
        return units, self._shapes.states_for(num_tokens)

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
        if self._shapes.slides:
            if decoding:
                computed = self._decoding.computed(table, clock)
            elif self._waits_for_return:
                computed = self._returned(table, self._steps)
            else:
                computed = table.tokens
            self._tables.give_back_below(table, computed)
        elif decoding:
            self._decoding.catch_up(seq)
        units, states = self._room(num_tokens)
        checkpoint = not decoding and self._needs.leaves_checkpoint(seq, table.tokens, num_tokens)
        need = self._shapes.missing(table, units, states, checkpoint=checkpoint)
        if need > self.pool.num_free:
            return None
        self._decoding.grow(seq, table, units, states, checkpoint=checkpoint)
        if decoding:
            self._decoders.extended.add(seq)
        else:
            self._filled(seq, table, num_tokens, checkpoint=checkpoint)
        return GROWN

    def await_steps(self, seq: Sequence) -> None:
        table: Table = seq.memory
        table.launches.clear()

    def _returned(self, table: Table, step: int) -> int:
        """Slots of a table from steps that have returned when step number `step` is scheduled."""
        for launched, slots in table.launches:
            if step - launched <= self._ahead:
                return slots
        return table.tokens

    def _filled(self, seq: Sequence, table: Table, num_tokens: int, *, checkpoint: bool) -> None:
        """The first `num_tokens` slots are valid, as far as their tokens are known; full blocks of
        them become known content.
        """
        if self._ahead:
            oldest = self._steps - self._ahead
            table.launches = [each for each in table.launches if each[0] > oldest]
            table.launches.append((self._steps, table.tokens))
        self._valid(table, num_tokens, min(num_tokens, seq.num_tokens))
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
        if self._shapes.missing(table, units, states, checkpoint=False) > self.pool.num_free:
            return False
        self._decoding.grow(seq, table, units, states)
        self._valid(table, num_tokens, valid_tokens)
        table.computed = computed
        if known_tokens >= table.cover_at:
            self._cache.cover(table, min(num_tokens, known_tokens), known_tokens)
        return True

    def checkpoint(self, seq: Sequence, num_tokens: int) -> None:
        if self._drafts.speculates and num_tokens >= seq.memory.cover_at - 1:
            self._cache.cover(seq.memory, num_tokens, num_tokens + 1, in_step=False)

    # --- decoding ------------------------------------------------------------------------------

    def join(self, seq: Sequence, num_tokens: int) -> None:
        returned = self._returned(seq.memory, self._steps)
        self._decoding.join(seq, num_tokens, returned)

    def leave(self, seq: Sequence) -> None:
        table: Table = seq.memory
        self._decoding.leave(seq)
        if self._ahead and table.tokens > table.joined:
            table.launches = [(self._steps - 1, table.tokens - 1)]

    def must_extend(self) -> list[Sequence]:
        return self._decoding.must_extend()

    def steps_that_fit(self, limit: int) -> int:
        return self._decoding.steps_that_fit(limit)

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        return self._blocked.steps(head, self.block_size, limit, busy=busy)

    def advance(self, steps: int) -> Course:
        return self._decoding.advance(steps, self._live)

    def step(self) -> None:
        self._decoding.step()

    def step_decided(self) -> None:
        self._steps += 1
        free = self.pool.num_free
        self._tables.decided()
        self._blocked.freed_since = self.pool.num_free > free

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
