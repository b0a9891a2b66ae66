"""The paged allocator for models whose layers do not all keep every token: sliding windows,
recurrent states, or both beside full attention.

Semantics of vLLM 0.33's hybrid manager (v1/core/kv_cache_coordinator.py). All groups of layers (see
kv_groups.py) draw blocks of one size from one pool, each into its own block table. Before a
sequence takes memory for new tokens, groups with a window of W tokens give back the blocks that lie
below its last `computed - W + 1` tokens; content stays cached, as when a sequence leaves. A hit
must be one in every group: the run of blocks that full attention knows, shortened until the blocks
of each window just below its end are known as well. A recurrent state takes one block for as long
as its sequence runs; it is not kept, so such models have no prefix cache.

When several sequences take and give in one step, each gives before it takes, in running order.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.allocator import MemorySpec, Refusal
from kvsim.memory.ledger import NOTHING, Course, Usage, split_free
from kvsim.memory.paged.allocator import PagedAllocator, Table
from kvsim.memory.paged.groups.grouping import group_layers
from kvsim.memory.paged.groups.hits import Hits, longest_hit
from kvsim.memory.paged.groups.tables import GroupTables, Tables
from kvsim.memory.paged.groups.windows import Windows
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence

if TYPE_CHECKING:
    from kvsim.memory.paged.options import Paged

_order = attrgetter("order")


class HybridAllocator(PagedAllocator):
    """Several block tables a sequence on one pool."""

    swappable = False  # windows would need blocks for what they gave back
    gives_back = True

    def __init__(self, options: "Paged", memory: MemorySpec) -> None:
        grouping = group_layers(memory.layout, options.block_size, memory.semantics)
        recurrent = any(group.state_bytes for group in grouping.groups)
        if recurrent and options.enable_prefix_caching:
            if "enable_prefix_caching" in options.model_fields_set:
                raise InputError(
                    "a recurrent state is overwritten in every step, no prefix of it is kept",
                    where="allocator.enable_prefix_caching",
                    value=True,
                    remedy="leave the key out or set it to false",
                )
            options = options.model_copy(update={"enable_prefix_caching": False})
        options = options.model_copy(update={"block_size": grouping.block_size})
        block = KVGroup("full", grouping.group_layers, grouping.slot_bytes)
        super().__init__(options, memory._replace(layout=KVLayout((block,))))
        self.token_bytes = memory.layout.bytes_per_token
        self._groups = grouping.groups
        self._tables = GroupTables(self.pool, self._groups, self.block_size, self._block_bytes)
        self._num_keeping = len(self._tables.keeping)
        self._windows = Windows(self._groups, self.block_size, self._hash_lag)
        self._most_tokens = memory.max_in_flight_tokens
        self._hits_memo: tuple[Sequence, int, Hits] | None = None  # seq, version

    # --- admission -----------------------------------------------------------------------------

    def _most_blocks(self, g: int, tokens: int) -> int:
        """Blocks that group g needs at once for a sequence of `tokens` tokens, at most."""
        group, blocks = self._groups[g], ceil_div(tokens, self.block_size)
        if group.state_bytes:
            return 1
        if group.window_tokens is None or self._most_tokens is None:
            return blocks
        kept = min(group.window_tokens - 1 + self._most_tokens, self._max_model_len)
        return min(blocks, ceil_div(kept, self.block_size) + 1)

    def refusal(self, request: Request) -> Refusal | None:
        """A request is refused if the blocks it may hold at once are more than the pool has, which
        is how vLLM sizes pools: windows count with the prompt tokens of the steps in flight.
        """
        final = request.prompt_tokens + request.output_tokens - 1
        need = sum(self._most_blocks(g, final) for g in range(len(self._groups)))
        usable = self.pool.num_blocks - 1
        if need <= usable:
            return None
        return Refusal(
            "more KV blocks than the pool has",
            need,
            usable,
            f"blocks of {self.block_size} tokens in a group of layers",
            "shorten the request or enlarge the pool",
        )

    def _keys_of(self, seq: Sequence) -> list[int]:
        """Keys of all its full blocks: those given back while it runs must find it again."""
        if isinstance(seq.memory, Tables):
            return seq.memory.keys
        keys: list[int] = []
        num_shareable = 0
        if self._caching:
            keys = self._content.of(seq)
            num_shareable = len(keys)
            keys.extend(self._content.private(seq.final_tokens // self.block_size - len(keys)))
        seq.memory = Tables(keys, num_shareable, len(self._groups))
        return keys

    def _hits(self, seq: Sequence) -> Hits:
        memo = self._hits_memo
        if memo is not None and memo[0] is seq and memo[1] == self.pool.version:
            return memo[2]
        most = (seq.num_tokens - 1) // self.block_size
        hits = longest_hit(self.pool, self._groups, self._keys_of(seq)[:most], self.block_size)
        self._hits_memo = (seq, self.pool.version, hits)
        return hits

    def cached_tokens(self, seq: Sequence) -> int:
        return self._hits(seq).num_blocks * self.block_size

    def _fits(self, hits: Hits, tokens: int, *, whole: bool, busy: bool) -> bool:
        return self._need(hits, tokens, whole=whole, busy=busy) <= self.pool.num_free

    def _need(self, hits: Hits, tokens: int, *, whole: bool, busy: bool) -> int:
        """Free blocks that an admission with these hits takes or asks to be there.

        whole: asked for all it will compute, chunk by chunk, so windows give back meanwhile.
        """
        need = self._watermark_blocks if busy else 0
        for g, blocks in enumerate(hits.blocks):
            most = ceil_div(tokens, self.block_size)
            if whole or self._groups[g].state_bytes:
                most = self._most_blocks(g, tokens)
            need += max(most - hits.num_blocks, 0) + self.pool.num_free_of(blocks)
        return need

    def admit(
        self, seq: Sequence, num_tokens: int, *, cached_tokens: int, reserve_tokens: int, busy: bool
    ) -> bool:
        hits = self._hits(seq)
        if not self._fits(hits, reserve_tokens, whole=True, busy=busy) or not self._fits(
            hits, num_tokens, whole=False, busy=busy
        ):
            return False
        table: Tables = seq.memory
        self._live[seq] = None
        self._tables.open(table, hits)
        self._grow(seq, table, ceil_div(num_tokens, self.block_size))
        self._filled(table, num_tokens)
        if self._caching and not seq.num_preemptions:
            self.query_tokens += seq.num_tokens
            self.hit_tokens += cached_tokens
        return True

    def _grow(self, seq: Sequence, table: Tables, count: int) -> None:
        before = table.count
        self._tables.grow(table, count)
        self._grown(seq, table, before, count)

    def extend(self, seq: Sequence, num_tokens: int) -> bool:
        """As promised, but blocks below a window go back even if there is no room."""
        table: Tables = seq.memory
        decoding = seq.decoding
        computed = self._computed(table, self._clock) if decoding else table.tokens
        if self._hash_lag and not decoding:
            computed = table.processed
        self._tables.give_back_below(table, computed)
        count = max(ceil_div(num_tokens, self.block_size), table.count)
        if (count - table.count) * self._num_keeping > self.pool.num_free:
            return False
        if count > table.count:
            self._grow(seq, table, count)
        if decoding:
            self._extended.add(seq)
        else:
            table.processed = table.tokens
            self._filled(table, num_tokens)
        return True

    def _computed(self, table: Tables, clock: int) -> int:
        """Slots of a decoder that have returned when the step at `clock` is scheduled."""
        if self._hash_lag and clock == table.since:
            return table.processed
        return table.base + clock - self._hash_lag

    def _filled(self, table: Table, num_tokens: int) -> None:
        assert isinstance(table, Tables)
        self._tables.used_bytes += (num_tokens - table.tokens) * self.token_bytes
        table.tokens = num_tokens
        self._register(table, self._known(table))

    def _register(self, table: Tables, known: int) -> None:
        """Full blocks among the first `known` slots are known content."""
        self._tables.register(table, min(known // self.block_size, len(table.keys)))

    # --- decoding ------------------------------------------------------------------------------

    def join(self, seq: Sequence, num_tokens: int) -> None:
        table: Tables = seq.memory
        if table.joined:  # it was passed over, so all its tokens have returned
            table.processed = num_tokens
        table.since = self._clock
        super().join(seq, num_tokens)
        self._windows.join(seq, table.base, self._clock, table.skipped)

    def leave(self, seq: Sequence) -> None:
        super().leave(seq)
        table: Tables = seq.memory
        self._windows.leave(seq, table.base)
        table.processed = table.tokens - self._hash_lag

    def due(self) -> list[Sequence]:
        """Who takes a block or gives one: both happen in running order."""
        takers = self._decoders.at(self._clock)
        return sorted(
            (takers | self._windows.givers(self._clock)).keys() - self._extended, key=_order
        )

    def _forecast(self, limit: int) -> Iterator[tuple[int, int]]:
        """(taken, given): blocks of each step from now on, for at most `limit` steps and as long as
        the rhythm of giving stays. Of those given others may still hold some.
        """
        clock, each = self._clock, self._num_keeping
        for later in range(clock, clock + min(limit, self._windows.steady_steps(clock))):
            taken = each * len(self._decoders.at(later))
            given = self._windows.num_given(later)
            if later == clock and self._extended:
                taken = each * sum(self._takes(seq.memory, clock) for seq in self.due())
                given = 0
            yield taken, given

    def _takes(self, table: Tables, clock: int) -> bool:
        return (table.base + clock) % self.block_size == 0

    def _most_taken(self, steps: int) -> int:
        return self._decoders.num * self._num_keeping * ceil_div(steps, self.block_size)

    def steps_that_fit(self, limit: int) -> int:
        """Steps that are safe even if all take before anybody gives."""
        if self._most_taken(limit) <= self.pool.num_free:
            return limit
        fitting, spare = 0, self.pool.num_free
        for taken, given in self._forecast(limit):
            if taken > spare:
                break
            fitting += 1
            spare -= taken
            if not self.pool.num_shared:
                spare += given
        return fitting

    def spare_steps(self, head: Sequence, limit: int, *, busy: bool) -> int:
        """As promised; while the head has hits, which whoever takes could forget, or room in all
        but not for every chunk, only until the next block moves.
        """
        hits = self._hits(head)
        spare = self.pool.num_free - self._head_blocks(head, busy=busy)
        if spare < 0 and self._windows.irregular(self._clock):
            return 0
        steps, enough = 0, spare >= 0
        most = self._need(hits, head.num_tokens, whole=False, busy=busy)
        delicate = hits.num_blocks > 0 or (enough and most > self.pool.num_free)
        for taken, given in self._forecast(limit):
            spare -= taken
            if not (enough and self.pool.num_shared):
                spare += given
            if (spare >= 0) != enough or (delicate and (taken or given)):
                break
            steps += 1
        return steps

    def may_gain(self, head: Sequence) -> bool:
        hits, keys = self._hits(head), self._keys_of(head)
        table: Tables = head.memory
        most = min(table.num_shareable, (head.num_tokens - 1) // self.block_size)
        missing = set(keys[hits.num_blocks : most])
        return bool(missing) and any(
            other.keys[other.registered] in missing
            for other in (seq.memory for seq in self._naming)
        )

    def advance(self, steps: int) -> Course:
        jumps = first = second = NOTHING
        slope = self._decoders.num * self.token_bytes
        used_rise = allocated_rise = 0
        before = self._books()
        for t, clock in enumerate(range(self._clock, self._clock + steps), start=1):
            if self._move(clock):
                after = self._books()
                jump = self._jump(before, after)
                before = after
                used_rise = max(used_rise, jumps.used + slope * (t - 1))
                jumps = _plus(jumps, jump, 1)
                first = _plus(first, jump, t)
                second = _plus(second, jump, t * (t - 1) // 2)
                allocated_rise = max(allocated_rise, jumps.allocated)
            if self._naming.num:
                self._name_filled(clock + 1 - self._hash_lag)
        self._clock += steps
        self._tables.used_bytes += slope * steps
        course = Usage(used=slope, reserved=-slope)
        return Course(course, jumps, first, second, used_rise, allocated_rise)

    def _move(self, clock: int) -> bool:
        """The step at `clock`: whose turn it is gives, then takes. Returns whether anybody did."""
        members = self._decoders.at(clock) | self._windows.givers(clock)
        if clock == self._clock:
            members = {seq: None for seq in members if seq not in self._extended}
            self._extended.clear()
        for seq in sorted(members, key=_order):
            table: Tables = seq.memory
            self._tables.give_back_below(table, self._computed(table, clock))
            if self._takes(table, clock):
                self._grow(seq, table, table.count + 1)
        self._windows.passed(clock)
        return bool(members)

    def _books(self) -> tuple[int, int, int, int, int]:
        pool = self.pool
        free, cached = pool.num_free, pool.num_cached_free
        return free, cached, self._tables.used_bytes, self._over_slots, self._tables.pad_bytes

    def _jump(self, before: tuple[int, ...], after: tuple[int, ...]) -> Usage:
        free, cached, used, over, pad = (b - a for a, b in zip(before, after, strict=True))
        return Usage(
            used=used,
            reserved=-free * self._block_bytes - used - over * self.token_bytes - pad,
            overprovisioned=over * self.token_bytes,
            rounding=pad,
            cached=cached * self._block_bytes,
            idle=(free - cached) * self._block_bytes,
        )

    def _name_filled(self, known: int) -> None:
        """Blocks whose content is known from the clock `known` on get their names."""
        for seq in sorted(self._naming.at(known), key=_order):
            self._name_next(seq, known)

    def _name_next(self, seq: Sequence, clock: int) -> None:
        table: Tables = seq.memory
        full = (table.base + clock) // self.block_size
        if full == table.registered + 1:
            self._tables.register(table, full)
            if full == len(table.keys):
                self._naming.leave(seq, table.base)

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        table: Tables = seq.memory
        del self._live[seq]
        self._register(table, table.tokens if seq.finished else self._known(table))
        self._tables.close(table)
        self._over_slots -= max(0, table.count * self.block_size - seq.final_tokens)
        seq.memory = None if seq.finished else table.afresh()
        self._hits_memo = None

    # --- the ledger ----------------------------------------------------------------------------

    @property
    def saved_bytes(self) -> int | None:
        return None  # windows give shared blocks back

    def held_tokens(self, seq: Sequence) -> int:
        return seq.memory.count * self.block_size if seq.memory else 0

    def _head_blocks(self, head: Sequence, *, busy: bool) -> int:
        return self._need(self._hits(head), head.num_tokens, whole=True, busy=busy)

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        pool, size = self.pool, self._block_bytes
        held = (pool.num_blocks - 1 - pool.num_free) * size
        cached = pool.num_cached_free * size
        need = None if head is None else self._head_blocks(head, busy=busy) * size
        external, short, idle = split_free(pool.num_free * size - cached, cached, need, True)
        used, pad = self._tables.used_bytes, self._tables.pad_bytes
        over = self._over_slots * self.token_bytes
        return Usage(
            used=used,
            reserved=held - used - over - pad,
            overprovisioned=over,
            rounding=pad,
            cached=cached,
            metadata=self._metadata,
            external=external,
            short=short,
            idle=idle,
        )

    def check(self) -> None:
        live = [
            (seq.memory.base + self._clock if seq.decoding else seq.memory.tokens, seq.memory)
            for seq in self._live
        ]
        self._tables.check(live)
        over = sum(
            max(0, seq.memory.count * self.block_size - seq.final_tokens) for seq in self._live
        )
        if over != self._over_slots:
            raise InvariantError(f"{over} over-provisioned slots, booked as {self._over_slots}")


def _plus(total: Usage, jump: Usage, times: int) -> Usage:
    return Usage(*(a + b * times for a, b in zip(total, jump, strict=True)))
