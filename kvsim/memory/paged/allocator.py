"""Paged KV memory as vLLM keeps it: blocks of one pool, block tables, prefix cache.

Semantics of vLLM 0.33 (v1/core/kv_cache_manager.py, kv_cache_coordinator.py and
single_type_kv_cache_manager.py). All groups of layers (see vllm/grouping.py) allocate blocks of one
size from one pool, each into its own block table. Most models are one group, which keeps every
token. Before a sequence allocates blocks for new tokens, groups with a window of W tokens free the
blocks before its last W - 1 computed tokens. Their content stays cached, as when a sequence leaves.
A hit must be one in every group. The run of blocks cached for full attention is shortened until
each window has the blocks just before its end cached too. A recurrent state takes one block while
its sequence runs, and more if states are cached.

`BlockRules` holds the differences between versions. The cache, the decoders, the ledger, shared
prompts, loads under a KV connector and the tier in host memory are parts of their own. Nothing is
touched per sequence per step: decoders advance together, in cohorts that start new blocks in the
same steps.
"""

from collections.abc import Sequence as Row

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import (
    ADMITTED,
    GROWN,
    Admission,
    Allocator,
    CacheTotals,
    Demand,
    Growth,
    Place,
    Refusal,
)
from kvsim.memory.ledger import Course, Usage
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.assembly import Assembly, PagedSettings
from kvsim.memory.paged.block_shape import BlockShape
from kvsim.memory.paged.blocked_head import BlockedHead
from kvsim.memory.paged.blocks import Table
from kvsim.memory.paged.loads import BlockLoads
from kvsim.memory.paged.pool_ledger import PoolLedger
from kvsim.memory.paged.verifying import VerifyingMembers
from kvsim.memory.parts import Parts
from kvsim.memory.timed import Timed
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence
from kvsim.vllm.grouping import BlockGroup, Grouping


@mypyc_attr(allow_interpreted_subclasses=True)
class PagedAllocator(Allocator):
    """Block tables over one pool, one table for each group of layers. A sequence must be released
    before it is admitted again.

    block_size: tokens in a block, the smallest of all groups. block_bytes: bytes of a block of
    `pool`. one_table: all layers share one table, which keeps every token.
    """

    def __init__(
        self, memory: MemorySpec, shape: BlockShape, grouping: Grouping, settings: PagedSettings
    ) -> None:
        parts = Assembly(memory, shape, grouping, settings)
        self.block_size, self.block_bytes = shape.block_size, shape.block_bytes
        self.capacity_bytes = memory.capacity_bytes
        self.token_bytes = memory.layout.bytes_per_token
        self.one_table = parts.one_table
        self.gives_back = not parts.one_table
        self.pool, self._tables, self._shapes = parts.pool, parts.tables, parts.tables.shapes
        self.swappable = not self._shapes.slides and not parts.has_states
        self._cache, self._needs, self._sizes = parts.cache, parts.needs, parts.sizes
        self._decoding, self._decoders = parts.decoding, parts.decoders
        self._names, self._drafts, self._chunks = parts.names, parts.drafts, parts.chunks
        self._forks, self._live = parts.forks, parts.live
        self._spare_block = memory.rules.spare_block
        self._waits_for_return = memory.rules.waits_for_return
        self._blocked = BlockedHead(self.pool, self._needs, self._cache, self._decoding)
        self._verifying: VerifyingMembers | None = None
        in_turn = bool(parts.names.redrafted) or not parts.sizes.same or parts.behind is not None
        if memory.speculation is not None and not in_turn:
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
        self._loads = BlockLoads(memory, parts) if memory.loads else None
        self._ledger = PoolLedger(memory, shape, parts, self._verifying, self._loads)

    @property
    def timed(self) -> Timed | None:
        return self.pool.timed

    @property
    def verifying(self) -> VerifyingMembers | None:
        return self._verifying

    @property
    def loading(self) -> BlockLoads | None:
        """Block operations for a KV connector; None without one."""
        return self._loads

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
        table = self._live.open(seq, hits)
        checkpoint = self._needs.leaves_checkpoint(seq, table.tokens, demand.num_tokens)
        units, states = self._live.room(demand.num_tokens)
        self._decoding.grow(seq, table, units, states, checkpoint=checkpoint)
        self._live.filled(seq, demand.num_tokens, checkpoint=checkpoint)
        table.computed = demand.cached_tokens
        if forks is not None:
            forks.admitted(seq, hits.found[0])
        loaded_bytes = self._cache.admitted(seq, demand.cached_tokens, host_keys)
        return Admission(loaded_bytes) if loaded_bytes else ADMITTED

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
                computed = self._live.returned(table)
            else:
                computed = table.tokens
            self._tables.give_back_below(table, computed)
        elif decoding:
            self._decoding.catch_up(seq)
        units, states = self._live.room(num_tokens)
        checkpoint = not decoding and self._needs.leaves_checkpoint(seq, table.tokens, num_tokens)
        need = self._shapes.missing(table, units, states, checkpoint=checkpoint)
        if need > self.pool.num_free:
            return None
        self._decoding.grow(seq, table, units, states, checkpoint=checkpoint)
        if decoding:
            self._decoders.extended.add(seq)
        else:
            self._live.filled(seq, num_tokens, checkpoint=checkpoint)
        return GROWN

    def await_steps(self, seq: Sequence) -> None:
        table: Table = seq.memory
        table.launches.clear()

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
        units, states = self._live.room(num_tokens)
        if self._shapes.missing(table, units, states, checkpoint=False) > self.pool.num_free:
            return False
        self._decoding.grow(seq, table, units, states)
        self._live.set_valid(table, num_tokens, valid_tokens)
        table.computed = computed
        if known_tokens >= table.cover_at:
            self._cache.cover(table, min(num_tokens, known_tokens), known_tokens)
        return True

    def checkpoint(self, seq: Sequence, num_tokens: int) -> None:
        if self._drafts.speculates and num_tokens >= seq.memory.cover_at - 1:
            self._cache.cover(seq.memory, num_tokens, num_tokens + 1, in_step=False)

    # --- decoding ------------------------------------------------------------------------------

    def join(self, seq: Sequence, num_tokens: int) -> None:
        returned = self._live.returned(seq.memory)
        self._decoding.join(seq, num_tokens, returned)

    def leave(self, seq: Sequence) -> None:
        table: Table = seq.memory
        self._decoding.leave(seq)
        if self._live.ahead and table.tokens > table.joined:
            table.launches = [(self._live.steps - 1, table.tokens - 1)]

    def must_extend(self) -> list[Sequence]:
        return self._decoding.must_extend()

    def steps_that_fit(self, limit: int) -> int:
        return self._decoding.steps_that_fit(limit)

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        return self._blocked.steps(head, self.block_size, limit, busy=busy)

    def advance(self, steps: int) -> Course:
        return self._decoding.advance(steps, self._live.seqs)

    def step(self) -> None:
        self._decoding.step()

    def step_decided(self) -> None:
        self._live.steps += 1
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
        junction = table.junction_tokens if live else self._live.junction(self._cache.hits(seq))
        return self._chunks.cut(seq, start_tokens, new_tokens, most_tokens, junction)

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        if self._forks is not None:
            self._forks.leave(seq)
        if self._loads is not None:
            self._loads.forget(seq)
        self._live.close(seq)

    # --- the ledger: see `PoolLedger` -----------------------------------------------------------

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        return self._ledger.usage(head, busy=busy)

    @property
    def parts(self) -> Parts:
        return self._ledger.parts

    @property
    def saved_bytes(self) -> int | None:
        return self._ledger.saved_bytes

    def shared_tokens(self, seq: Sequence) -> int:
        return self._ledger.shared_tokens(seq)

    def check(self) -> None:
        self._ledger.check()

    def cache_totals(self) -> CacheTotals:
        return self._cache.totals

    @property
    def pads_blocks(self) -> bool:
        return not self.one_table

    @property
    def tells_cached(self) -> bool:
        return True

    @property
    def copied_bytes(self) -> int:
        return self._forks.num_copies * self.block_bytes if self._forks is not None else 0

    # --- blocks of a sequence ------------------------------------------------------------------

    @property
    def groups(self) -> Row[BlockGroup]:
        """The groups of layers, in the order of their tables."""
        return self._tables.groups

    def granted_tokens(self, seq: Sequence) -> int:
        if not seq.memory:
            return 0
        self._decoding.catch_up(seq)
        table: Table = seq.memory
        return table.count * self._sizes.unit

    def held_blocks(self, seq: Sequence) -> list[int]:
        """Number of blocks that `seq` holds in each group."""
        self._decoding.catch_up(seq)
        return self._tables.held_blocks(seq.memory)

    def table_length(self, seq: Sequence) -> int:
        """Number of entries in the block table of `seq` for the first layer group, including freed
        ones.
        """
        self._decoding.catch_up(seq)
        return self._tables.length(seq.memory)

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        units = ceil_div(tokens - self.granted_tokens(seq), self._sizes.unit)
        return max(0, units) * self._sizes.unit

    def blocks_of(self, seq: Sequence) -> list[int]:
        """The block numbers of a running sequence, group by group, without freed ones."""
        return self._tables.blocks_of(seq.memory) if seq.memory else []

    def place(self, seq: Sequence) -> Place:
        return Place(blocks=self.blocks_of(seq)) if self.one_table else super().place(seq)
