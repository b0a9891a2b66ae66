"""Paged KV memory as vLLM keeps it: blocks of one pool, block tables, prefix cache.

Semantics of vLLM 0.33 (v1/core/kv_cache_manager.py, single_type_kv_cache_manager.py), one group of
layers: a sequence holds ceil(slots / block_size) blocks. What differs between versions stands in
`BlockRules`; the cache, the decoders and the forks of samples are parts of their own.

Nothing is touched per sequence per step: decoders advance together, in cohorts that start new
blocks in the same steps.
"""

from collections.abc import Sequence as Row

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import (
    ADMITTED,
    GROWN,
    Admission,
    Allocator,
    Demand,
    Growth,
    Place,
    Refusal,
)
from kvsim.memory.cohorts import Cohort
from kvsim.memory.ledger import Course, Usage, filling
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.behind import BehindInBlocks
from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.books import block_parts, block_usage
from kvsim.memory.paged.course import BlockStarts
from kvsim.memory.paged.decoders import Decoders, by_order
from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.memory.paged.forks import Forks
from kvsim.memory.paged.host_tier import HostTier
from kvsim.memory.paged.lookahead import Lookahead
from kvsim.memory.paged.one_table import OneTable
from kvsim.memory.paged.prefix_cache import PrefixCache
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.paged.slot_counts import SlotCounts, distinct_slots
from kvsim.memory.paged.table import BlockTable
from kvsim.memory.paged.verifying.tables import VerifyingTables
from kvsim.memory.parts import Parts
from kvsim.memory.prefix import CacheTotals
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class PagedAllocator(Allocator):
    """The pool, the tables and the parts. Needs: sequences released before they are admitted again.

    caching: finished blocks are kept for later hits. watermark: share of the pool that an admission
    leaves free (None: what the rules say). forks: samples share their prompt by copy on write.
    host_cache_bytes: of host memory for content evicted from the device. eviction: which content
    is (None: the least recently used).
    """

    def __init__(
        self,
        memory: MemorySpec,
        shape: BlockShape,
        *,
        caching: bool,
        watermark: float | None = None,
        forks: bool = False,
        host_cache_bytes: int | None = None,
        eviction: EvictionPolicy | None = None,
    ) -> None:
        self._rules = rules = memory.rules
        self._shape = shape
        self.block_size = shape.block_size
        self.capacity_bytes = memory.capacity_bytes
        self.token_bytes = shape.slot_bytes
        share = rules.default_watermark if watermark is None else watermark
        self._watermark_blocks = int(share * shape.num_blocks)
        self.pool = BlockPool(
            shape.usable_blocks + 1,
            blank_first=rules.blank_first,
            eviction=None
            if eviction is None
            else eviction.build(shape.usable_blocks, shape.block_size),
        )
        self._decoders = Decoders(shape.block_size)
        self._counts = SlotCounts()
        self._drafts = Lookahead.of(memory)
        host = None
        if host_cache_bytes is not None:
            host = HostTier(host_cache_bytes, shape.block_bytes)
            self.pool.on_evict = host.offload
        self._cache: PrefixCache[list[int]] = PrefixCache(
            OneTable(
                self.pool, drops=bool(memory.speculation and memory.speculation.drops_last_block)
            ),
            shape.block_size,
            enabled=caching,
            lag=memory.hash_lag,
            host=host,
            speculation=memory.speculation,
            names_returned=memory.rules.names_returned or memory.hash_lag > 0,
        )
        self._forks = None
        if forks:
            self._forks = Forks(self.pool, self._decoders, self._counts, shape.block_size)
        self._live: dict[Sequence, None] = {}
        self._behind = BehindInBlocks(memory.layout, self.pool, self._decoders, shape.block_size)
        self._verifying: VerifyingTables | None = None
        if memory.speculation is not None and not self._behind:
            self._verifying = VerifyingTables(
                self.pool,
                self._cache,
                self._counts,
                shape.block_size,
                self._drafts,
                memory.hash_lag,
            )

    @property
    def verifying(self) -> VerifyingTables | None:
        return self._verifying

    # --- admission -----------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        final = self._drafts.final_room(request.prompt_tokens + request.output_tokens - 1)
        need, beside = ceil_div(final, self.block_size), ""
        if self._rules.watermark_when_idle:
            need += self._watermark_blocks
            beside = " beside its watermark"
        if self._rules.spare_block and request.output_tokens > 1:
            need = max(need, ceil_div(final - 1, self.block_size) + 1)  # for its last step
        return self._shape.refusal(need, f"blocks of {self.block_size} tokens", beside)

    def _hits(self, seq: Sequence) -> list[int]:
        """Blocks that `seq` can take over: the cache's, or those of its family's prompt."""
        known = self._cache.hits(seq)
        if self._forks is None or seq.request.n == 1:
            return known
        shared = self._forks.prompt_blocks(seq)
        return shared if len(shared) > len(known) else known

    def cached_tokens(self, seq: Sequence) -> int:
        hits = self._hits(seq)
        num_blocks = len(hits) + len(self._cache.host_keys(seq, len(hits)))
        return min(num_blocks * self.block_size, seq.num_tokens - 1)

    def _blocks_needed(self, hits: Row[int], tokens: int, *, busy: bool) -> int:
        """Free blocks an admission with these hits takes or asks to be there."""
        watermark = busy or self._rules.watermark_when_idle
        revived = self.pool.num_free_of(hits)
        blocks = max(ceil_div(tokens, self.block_size) - len(hits), 0) + revived
        return blocks + self._watermark_blocks * watermark

    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        if self._forks is not None and self._forks.prompt_is_coming(seq):
            return None
        need = 0
        if self._rules.spare_block and demand.swapped_in:
            need = ceil_div(demand.cached_tokens, self.block_size) + 1 + self._watermark_blocks
        hits = self._hits(seq)
        room_tokens = self._drafts.room(demand.num_tokens)
        fit_tokens = max(demand.fit_tokens, room_tokens)
        need = max(need, self._blocks_needed(hits, fit_tokens, busy=demand.busy))
        if need > self.pool.num_free:
            return None
        host_keys = self._cache.host_keys(seq, len(hits))
        table: BlockTable = seq.memory
        self._live[seq] = None
        self._counts.used -= self.pool.share(hits) * self.block_size
        num_blocks = ceil_div(room_tokens, self.block_size)
        table.blocks = hits + self.pool.take(num_blocks - len(hits))
        table.registered = table.covered = len(hits)
        self._counts.grow(seq.final_tokens, 0, num_blocks, self.block_size)
        self._filled(seq, table, demand.num_tokens)
        table.computed = demand.cached_tokens
        if self._forks is not None:
            self._forks.admitted(seq, hits)
        loaded_bytes = self._cache.admitted(seq, demand.cached_tokens, host_keys)
        return Admission(loaded_bytes) if loaded_bytes else ADMITTED

    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        if turns_before:
            self._cache.turns_before(turns_before, self._decoders.clock)
        if seq.decoding and self._rules.spare_block and not self.pool.num_free:
            return None
        if self._forks is not None and not self._forks.make_room(seq, num_tokens):
            return None
        table: BlockTable = seq.memory
        before = len(table.blocks)
        need = ceil_div(self._drafts.room(num_tokens), self.block_size) - before
        if need > self.pool.num_free:
            return None
        if need > 0:
            table.blocks += self.pool.take(need)
            self._counts.grow(seq.final_tokens, before, before + need, self.block_size)
        if seq.decoding:
            self._decoders.extended.add(seq)
        else:
            self._filled(seq, table, num_tokens)
        return GROWN

    def verify(
        self,
        seq: Sequence,
        num_tokens: int,
        returned_tokens: int,
        known_tokens: int,
        valid_tokens: int,
    ) -> bool:
        table: BlockTable = seq.memory
        before, room_tokens = len(table.blocks), self._drafts.room(num_tokens)
        if room_tokens > before * self.block_size:
            need = ceil_div(room_tokens, self.block_size) - before
            if need > self.pool.num_free:
                return False
            table.blocks += self.pool.take(need)
            self._counts.grow(seq.final_tokens, before, before + need, self.block_size)
        counts, drafts = self._counts, room_tokens - valid_tokens
        counts.used += valid_tokens - table.tokens
        counts.drafts += drafts - table.drafts
        table.tokens, table.drafts = valid_tokens, drafts
        if known_tokens >= table.cover_at:
            self._cache.cover(table, min(num_tokens, known_tokens), known_tokens)
        return True

    def checkpoint(self, seq: Sequence, num_tokens: int) -> None:
        if self._drafts.speculates and num_tokens >= seq.memory.cover_at - 1:
            self._cache.cover(seq.memory, num_tokens, num_tokens + 1, in_step=False)

    def _filled(self, seq: Sequence, table: BlockTable, num_tokens: int) -> None:
        """The first `num_tokens` slots, as far as tokens are known, are valid; their full blocks
        become known content.
        """
        self._valid(table, num_tokens, min(num_tokens, seq.num_tokens))
        self._cache.filled(seq, table)

    def _valid(self, table: BlockTable, num_tokens: int, valid_tokens: int) -> None:
        """Of the slots up to `num_tokens` and those of the next drafts, so many are valid."""
        counts = self._counts
        counts.used += valid_tokens - table.tokens
        table.computed, table.tokens = table.tokens, valid_tokens
        drafts = self._drafts.unused(num_tokens, valid_tokens)
        counts.drafts += drafts - table.drafts
        table.drafts = drafts

    # --- decoding ------------------------------------------------------------------------------

    def join(self, seq: Sequence, num_tokens: int) -> None:
        table: BlockTable = seq.memory
        self._decoders.join(seq, table, num_tokens)
        self._cache.join(seq, table)

    def leave(self, seq: Sequence) -> None:
        table: BlockTable = seq.memory
        self._cache.leave(seq, table)
        self._decoders.leave(seq, table)
        if table.tokens > table.joined:
            table.computed = table.tokens - 1

    def must_extend(self) -> list[Sequence]:
        if self._rules.spare_block:
            extended = self._decoders.extended
            return [seq for seq in self._live if seq.decoding and seq not in extended]
        waiting = self._decoders.without_room()
        copying = self._forks.copying() if self._forks is not None else ()
        return sorted({*waiting, *copying}, key=by_order) if copying else waiting

    def steps_that_fit(self, limit: int) -> int:
        free = self.pool.num_free
        if self._rules.spare_block:  # nobody can have missed one while a block is still free
            return self._steps_within(free - 1, limit) if free else 0
        return self._steps_within(free, limit)

    def _steps_within(self, blocks: int, limit: int) -> int:
        """For how many steps `blocks` blocks suffice."""
        if self._forks is not None:
            blocks -= len(self._forks.copying())
            if blocks < 0:
                return 0
        return self._decoders.steps_within(blocks, limit)

    def steps_alike(self, head: Sequence, limit: int, *, busy: bool) -> int:
        hits = self._hits(head)
        if self._cache.may_gain(head, len(hits)):
            return 0
        spare = self.pool.num_free - self._blocks_needed(hits, head.num_tokens, busy=busy)
        if spare >= 0:
            limit = self._steps_within(spare, limit)
        if self._cache.has_host and len(self._cache.table_of(head).runs):
            return self._steps_within(0, limit)  # a block taken may push its content out of there
        return limit

    def advance(self, steps: int) -> Course:
        if self._forks is not None:
            self._forks.advance()
        decoders, counts = self._decoders, self._counts
        movers = self._behind.movers(self._live)
        starts = BlockStarts(self._shape, self.pool, counts)
        told = 0  # steps whose filled blocks are known content
        for t, cohort in decoders.block_starts(steps):
            if self.pool.eviction is not None:  # it may matter whether they are when a block goes
                self._cache.advanced(decoders.clock + told, t - 1 - told)
                told = t - 1
            starts.at(t, self._start_blocks(t, cohort))
        self._cache.advanced(decoders.clock + told, steps - told)
        decoders.advance(steps)
        counts.used += decoders.num * steps
        slope = decoders.num * self.token_bytes
        course = starts.course(filling(slope))
        return self._behind.during(course, movers, steps) if movers else course

    def _start_blocks(self, t: int, cohort: Cohort) -> int:
        """Every sequence of `cohort` takes its next block at step t; returns how many took one."""
        members = sorted(cohort, key=by_order) if len(cohort) > 1 else list(cohort)
        extended, counts = self._decoders.extended, self._counts
        if t == 1 and extended:
            members = [seq for seq in members if seq not in extended]
        size, clock = self.block_size, self._decoders.clock
        for seq, block in zip(members, self.pool.take(len(members)), strict=True):
            table: BlockTable = seq.memory
            table.blocks.append(block)
            slots = len(table.blocks) * size
            if slots >= seq.final_tokens:
                counts.over += slots - seq.final_tokens
        if members and len(members[0].memory.blocks) * size < members[0].memory.base + clock + t:
            raise InvariantError(f"{members[0]} decodes into a slot it does not hold")
        return len(members)

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        unused = self._forks.leave(seq) if self._forks is not None else 0
        table: BlockTable = seq.memory
        del self._live[seq]
        full = self._cache.released(seq, table)
        num_prompt = seq.prompt_tokens // self.block_size
        shared = self.pool.give_back(table.blocks, full, num_prompt, session=table.session)
        self._counts.used += shared * self.block_size - table.tokens - unused
        self._counts.drafts -= table.drafts
        slots = len(table.blocks) * self.block_size
        if slots >= seq.final_tokens:
            self._counts.over -= slots - seq.final_tokens

    # --- the ledger ----------------------------------------------------------------------------

    def granted_tokens(self, seq: Sequence) -> int:
        return len(seq.memory.blocks) * self.block_size if seq.memory else 0

    def shared_tokens(self, seq: Sequence) -> int:
        shared = self.pool.num_leading_shared(seq.memory.blocks)
        return min(shared * self.block_size, self._slots(seq))

    def _slots(self, seq: Sequence) -> int:
        """Valid slots of a live sequence."""
        if self._verifying is not None and seq in self._verifying:
            return self._verifying.slots(seq)
        return self._decoders.slots(seq)

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
        drafts = self._counts.drafts * self.token_bytes
        return block_parts(self._shape, self.pool, drafts, behind=self._left_bytes())

    @property
    def copied_bytes(self) -> int:
        return self._forks.num_copies * self._shape.block_bytes if self._forks is not None else 0

    @property
    def block_bytes(self) -> int:
        """Of a block of `pool`."""
        return self._shape.block_bytes

    def blocks_of(self, seq: Sequence) -> Row[int]:
        """The blocks of a running sequence."""
        blocks: list[int] = seq.memory.blocks
        return blocks

    def place(self, seq: Sequence) -> Place:
        return Place(blocks=seq.memory.blocks)

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        need = None
        if head is not None:
            need = self._blocks_needed(self._hits(head), head.num_tokens, busy=busy)
        shape, pool, counts = self._shape, self.pool, self._counts
        pad = (shape.usable_blocks - pool.num_free) * shape.pad_bytes
        used, over = counts.used * self.token_bytes, counts.over * self.token_bytes
        behind = self._left_bytes()
        return block_usage(shape, pool, used - behind, over + behind, pad, need)

    def _left_bytes(self) -> int:
        """What windows have left behind."""
        return self._behind.bytes(self._live)

    def check(self) -> None:
        self.pool.check(seq.memory.blocks for seq in self._live)
        size, forks = self.block_size, self._forks
        over = drafts = 0
        for seq in self._live:
            if self._verifying is not None and seq in self._verifying:
                drafts += self._verifying.drafts_of(seq)
            else:
                drafts += seq.memory.drafts
            if forks is None or seq not in forks:
                over += max(0, len(seq.memory.blocks) * size - seq.final_tokens)
        tables = ((seq.memory.blocks, self._slots(seq)) for seq in self._live)
        found, counted = SlotCounts(distinct_slots(tables, size), over, drafts), self._counts
        if found != counted:
            raise InvariantError(f"slots of live sequences are {found}, counted as {counted}")
