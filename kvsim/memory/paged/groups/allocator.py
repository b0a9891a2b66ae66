"""The paged allocator for models whose layers do not all keep every token: sliding windows,
recurrent states, or both beside full attention.

Semantics of vLLM 0.33's hybrid manager (v1/core/kv_cache_coordinator.py). All groups of layers (see
grouping.py) draw blocks of one size from one pool, each into its own block table. Before a
sequence takes memory for new tokens, groups with a window of W tokens give back the blocks that lie
below its last `computed - W + 1` tokens; content stays cached, as when a sequence leaves. A hit
must be one in every group: the run of blocks that full attention knows, shortened until the blocks
of each window just below its end are known as well. A recurrent state takes one block for as long
as its sequence runs; it is not kept, so such models have no prefix cache.

Who decodes, and how they take and give, is the part of decoding.py.
"""

from typing import ClassVar

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
from kvsim.memory.ledger import Course, Usage
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.books import block_parts, block_usage
from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.memory.paged.groups.cache import GroupsCache
from kvsim.memory.paged.groups.decoding import Decoding
from kvsim.memory.paged.groups.hits import Hits
from kvsim.memory.paged.groups.needs import Needs
from kvsim.memory.paged.groups.places import Places
from kvsim.memory.paged.groups.retention import check_interval
from kvsim.memory.paged.groups.rooms import Rooms
from kvsim.memory.paged.groups.state_chunks import StateChunks
from kvsim.memory.paged.groups.store import store_of
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.groups.verifying import VerifyingGroups
from kvsim.memory.paged.lookahead import Lookahead
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.parts import Parts
from kvsim.memory.prefix import CacheTotals
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence
from kvsim.vllm.grouping import Grouping
from kvsim.vllm.sizes import Sizes


@mypyc_attr(allow_interpreted_subclasses=True)
class GroupsAllocator(Allocator):
    """Several block tables a sequence on one pool.

    grouping: of its layers. caching, watermark: as in PagedAllocator.
    retention_tokens: prefix_cache_retention_interval (see retention.py). checkpoint_alignment: the
    prefill kernel writes states out within a chunk, so many tokens or a multiple behind its start.
    eviction: as in PagedAllocator. counted: nobody can tell blocks without names apart, so those
    are counted where no hit ends inside a block (see counted/).
    """

    swappable: ClassVar[bool] = False  # windows would need blocks for what they gave back
    gives_back: ClassVar[bool] = True

    def __init__(
        self,
        memory: MemorySpec,
        grouping: Grouping,
        *,
        caching: bool,
        watermark: float | None = None,
        retention_tokens: int | None = None,
        checkpoint_alignment: int | None = None,
        eviction: EvictionPolicy | None = None,
        match_unit: int | None = None,
        counted: bool = False,
    ) -> None:
        rules = memory.rules
        size = self.block_size = grouping.block_size
        self._shape = BlockShape.of(memory, size, grouping.slot_bytes, rules.null_blocks)
        self.capacity_bytes = memory.capacity_bytes
        self.token_bytes = memory.layout.bytes_per_token
        share = rules.default_watermark if watermark is None else watermark
        self._watermark_blocks = int(share * self._shape.num_blocks)
        self._lag = memory.hash_lag
        self._window_lag = self._lag if rules.waits_for_return else 0
        self._plants = rules.plants_junctions
        groups, drafter = grouping.groups, memory.speculation
        places = Places.of(rules, drafter)
        unit = match_unit if caching else None
        sizes = self._sizes = Sizes.of(groups, unit, caching=caching, rules=rules)
        check_interval(retention_tokens, sizes.whole)
        # What is known counts from hit to hit, but for drafts, with which some know more.
        step = sizes.whole if drafter is None and not sizes.inner else sizes.unit
        states = any(group.state_bytes for group in groups)
        self.pool, self._names, self._tables = store_of(
            memory,
            self._shape,
            groups,
            sizes,
            places,
            step,
            caching=caching,
            retention_tokens=retention_tokens,
            eviction=eviction,
            counted=counted and checkpoint_alignment is None,
        )
        self._drafts = drafts = Lookahead.of(memory)
        self._chunks = None
        if caching and states:
            self._chunks = StateChunks(
                sizes,
                places,
                checkpoint_alignment,
                every_chunk=retention_tokens != 0,
                cuts_at_blocks=rules.cuts_at_blocks,
                stops_at_hits=rules.stops_at_hits,
            )
        # A kept state stays until the next is whole.
        most_states = (2 + (checkpoint_alignment is not None) if caching else 1) + drafts.tokens
        within = sizes.aligned if sizes.inner else None
        self._needs = Needs(
            memory, self._names, groups, most_states, drafts.tokens, drafts.redrafted, within
        )
        self._cache = GroupsCache(
            self._names,
            step,
            sizes,
            enabled=caching,
            lag=self._lag,
            speculation=drafter,
            names_returned=rules.names_returned or self._lag > 0,
            holds_back=len(groups) == 1,  # as vLLM's coordinator of several groups does not
        )
        self._rooms = Rooms(groups, sizes)
        self._decoding = Decoding(
            self._shape,
            self.pool,
            self._tables,
            self._rooms,
            self._cache,
            sizes,
            lag=self._window_lag,
            token_bytes=self.token_bytes,
        )
        self._verifying: VerifyingGroups | None = None
        if drafter is not None and sizes.same:
            self._verifying = VerifyingGroups(
                self.pool,
                self._tables,
                self._decoding,
                self._cache,
                self._rooms,
                sizes,
                drafts,
                self._lag,
                token_bytes=self.token_bytes,
                waits=self._waits,
                lazy=eviction is None and not states,
            )
        self._live: dict[Sequence, None] = {}
        self._steps = 0  # scheduled so far; a run of them counts as two at most
        self._put_off = False  # the head of the queue waits for a state that a step is making
        self._let_go = False  # copies gave blocks back when the last step had been decided

    @property
    def verifying(self) -> VerifyingGroups | None:
        return self._verifying

    # --- admission -----------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        final = self._drafts.final_room(request.prompt_tokens + request.output_tokens - 1)
        unit = f"blocks of {self.block_size} tokens in a group of layers"
        return self._shape.refusal(self._needs.of_alone(final), unit)

    def cached_tokens(self, seq: Sequence) -> int:
        return self._cache.hits(seq).tokens

    def _need(self, seq: Sequence, hits: Hits, tokens: int, *, whole: bool, busy: bool) -> int:
        """Free blocks that an admission of `seq` with these hits takes or asks to be there."""
        states = 1 + self._leaves_checkpoint(seq, hits.tokens, tokens)
        watermark = self._watermark_blocks if busy else 0
        lookahead = 0 if whole else self._drafts.room(tokens) - tokens
        return watermark + self._needs.of(hits, tokens, states, whole=whole, lookahead=lookahead)

    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        hits, free = self._cache.hits(seq), self.pool.num_free
        self._put_off = self._names.is_being_made(hits)
        if self._put_off:
            return None
        if self._need(seq, hits, demand.fit_tokens, whole=True, busy=demand.busy) > free:
            return None
        if self._need(seq, hits, demand.num_tokens, whole=False, busy=demand.busy) > free:
            return None
        table: GroupTable = seq.memory
        table.prompt_tokens = seq.prompt_tokens
        table.boundaries = self._names.boundaries(seq.prompt_tokens)
        table.junction_tokens = self._junction(hits)
        self._live[seq] = None
        self._tables.open(table, hits)
        self._rooms.grown(seq.final_tokens, 0, table.count)
        checkpoint = self._leaves_checkpoint(seq, table.tokens, demand.num_tokens)
        self._decoding.grow(seq, table, *self._room(demand.num_tokens), checkpoint=checkpoint)
        self._filled(seq, table, demand.num_tokens, checkpoint=checkpoint)
        self._cache.admitted(seq, demand.cached_tokens, [])
        return ADMITTED

    def _room(self, num_tokens: int) -> tuple[int, int]:
        """Units of tables of tokens, and room of those of states, for a step up to
        `num_tokens` slots.
        """
        units = ceil_div(self._drafts.room(num_tokens), self._sizes.unit)
        return units, self._tables.states_for(num_tokens)

    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        """As promised, but blocks below a window go back even if there is no room."""
        table: GroupTable = seq.memory
        decoding, clock = seq.decoding, self._decoding.decoders.clock
        if turns_before:
            self._cache.turns_before(turns_before, clock)
        computed = self._decoding.computed(table, clock) if decoding else table.tokens
        if self._window_lag and not decoding and table.scheduled == self._steps - 1:
            computed = table.processed
        self._tables.give_back_below(table, computed)
        room = self._room(num_tokens)
        checkpoint = not decoding and self._leaves_checkpoint(seq, table.tokens, num_tokens)
        need = self._tables.missing(table, *room, checkpoint=checkpoint)
        if need > self.pool.num_free:
            return None
        self._decoding.grow(seq, table, *room, checkpoint=checkpoint)
        if decoding:
            self._decoding.decoders.extended.add(seq)
        else:
            table.processed = table.tokens
            self._filled(seq, table, num_tokens, checkpoint=checkpoint)
        return GROWN

    def _filled(
        self, seq: Sequence, table: GroupTable, num_tokens: int, *, checkpoint: bool
    ) -> None:
        """The first `num_tokens` slots, as far as tokens are known, are valid; their full blocks
        become known content.
        """
        self._valid(table, num_tokens, min(num_tokens, seq.num_tokens))
        table.scheduled = self._steps
        self._cache.filled(seq, table)
        self._names.name_inside(table, checkpoint=checkpoint)

    def _valid(self, table: GroupTable, num_tokens: int, valid_tokens: int) -> None:
        """Of the slots up to `num_tokens` and those of the next drafts, so many are valid."""
        self._tables.used_bytes += (valid_tokens - table.tokens) * self.token_bytes
        table.tokens = valid_tokens
        self._rooms.drafting(table, self._drafts.unused(num_tokens, valid_tokens))

    # --- drafts --------------------------------------------------------------------------------

    def verify(
        self,
        seq: Sequence,
        num_tokens: int,
        returned_tokens: int,
        known_tokens: int,
        valid_tokens: int,
    ) -> bool:
        """As promised, but blocks below a window go back even if there is no room."""
        table: GroupTable = seq.memory
        self._tables.give_back_below(table, returned_tokens)
        room = self._room(num_tokens)
        if self._tables.missing(table, *room, checkpoint=False) > self.pool.num_free:
            return False
        self._decoding.grow(seq, table, *room)
        self._valid(table, num_tokens, valid_tokens)
        if known_tokens >= table.cover_at:
            self._cache.cover(table, min(num_tokens, known_tokens), known_tokens)
        return True

    def _waits(self, head: Sequence) -> tuple[bool, bool] | None:
        """Whether the head of the queue, which could not start beside others, may lack blocks, and
        whether it has hits; None: it waits for nothing that could be foreseen.
        """
        hits = self._cache.hits(head)
        if self._put_off or self._cache.may_gain(head, 0):
            return None
        tokens, free = head.num_tokens, self.pool.num_free
        lacking = self._need(head, hits, tokens, whole=True, busy=True) > free
        lacking = lacking or self._need(head, hits, tokens, whole=False, busy=True) > free
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

    def steps_alike(self, head: Sequence, limit: int, *, busy: bool) -> int:
        """As promised; while something of the head is known, which whoever takes could forget, or
        there is room in all but not for every chunk, only until the next block moves.
        """
        hits = self._cache.hits(head)
        unsettled = self._put_off or self._let_go or self._decoding.copying
        if unsettled or self._cache.may_gain(head, 0):
            return 0
        most = self._need(head, hits, head.num_tokens, whole=False, busy=busy)
        spare = self.pool.num_free - self._head_need(head, hits, busy=busy)
        known = hits.tokens > 0 or hits.junction > 0
        # Where all that is free is cached, the ledger does not tell whose the next blank block is.
        untold = spare < 0 and self.pool.num_free == self.pool.num_cached_free
        delicate = known or untold or (spare >= 0 and most > self.pool.num_free)
        return self._decoding.forecast.steps_alike(spare, limit, delicate=delicate)

    def advance(self, steps: int) -> Course:
        return self._decoding.advance(steps)

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
        table: GroupTable = seq.memory
        live = seq in self._live
        junction = table.junction_tokens if live else self._junction(self._cache.hits(seq))
        return self._chunks.cut(seq, start_tokens, new_tokens, most_tokens, junction)

    def _junction(self, hits: Hits) -> int:
        """Where others were seen to part, if the version keeps anything there."""
        return hits.junction if self._plants else 0

    def _leaves_checkpoint(self, seq: Sequence, start: int, end: int) -> bool:
        """Whether a chunk of these tokens takes a block more for a state within it."""
        return self._chunks is not None and self._chunks.leaves_checkpoint(seq, start, end)

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        table: GroupTable = seq.memory
        del self._live[seq]
        known = self._cache.released(seq, table)
        self._tables.close(table, known if seq.finished else 0)
        self._rooms.closed(table, seq.final_tokens)

    # --- the ledger ----------------------------------------------------------------------------

    @property
    def saved_bytes(self) -> int | None:
        return None  # windows give shared blocks back

    def cache_totals(self) -> CacheTotals:
        return self._cache.totals

    @property
    def pads_blocks(self) -> bool:
        return True

    @property
    def tells_cached(self) -> bool:
        return True

    @property
    def parts(self) -> Parts:
        drafts = self._rooms.drafts * self.token_bytes + self._tables.scratch_bytes
        return block_parts(self._shape, self.pool, drafts, states=self._tables.state_bytes)

    def granted_tokens(self, seq: Sequence) -> int:
        return seq.memory.count * self._sizes.unit if seq.memory else 0

    def held_blocks(self, seq: Sequence) -> list[int]:
        """How many blocks `seq` holds in each group."""
        return self._tables.held_blocks(seq.memory)

    def table_length(self, seq: Sequence) -> int:
        """Positions of its table in the first group of layers."""
        return self._tables.length(seq.memory)

    def shared_tokens(self, seq: Sequence) -> int:
        """By the groups that keep every token; what windows and states need may be gone."""
        shared = self._tables.leading_shared(seq.memory)
        return min(shared, self._slots(seq))

    def _slots(self, seq: Sequence) -> int:
        """Valid slots of a live sequence."""
        if self._verifying is not None and seq in self._verifying:
            return self._verifying.slots(seq)
        return self._decoding.decoders.slots(seq)

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        units = ceil_div(tokens - self.granted_tokens(seq), self._sizes.unit)
        return max(0, units) * self._sizes.unit

    def _head_need(self, head: Sequence, hits: Hits, *, busy: bool) -> int:
        return self._need(head, hits, head.num_tokens, whole=True, busy=busy)

    @property
    def block_bytes(self) -> int:
        """Of a block of `pool`."""
        return self._shape.block_bytes

    def blocks_of(self, seq: Sequence) -> list[int]:
        """The blocks of a running sequence, group by group; none where it has returned them."""
        return self._tables.blocks_of(seq.memory) if seq.memory else []

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        need = None
        if head is not None:
            need = self._head_need(head, self._cache.hits(head), busy=busy)
        tables, over = self._tables, self._rooms.over_bytes
        return block_usage(self._shape, self.pool, tables.used_bytes, over, tables.pad_bytes, need)

    def check(self) -> None:
        self._tables.check((self._slots(seq), seq.memory) for seq in self._live)
        self._rooms.check((seq.memory, seq.final_tokens) for seq in self._live)
