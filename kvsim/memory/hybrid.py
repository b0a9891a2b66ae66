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

from kvsim.errors import InputError, InvariantError
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.allocator import MemorySpec, Refusal
from kvsim.memory.hybrid_hits import Hits, longest_hit, skipped_blocks
from kvsim.memory.hybrid_windows import Windows
from kvsim.memory.kv_groups import group_layers
from kvsim.memory.ledger import NOTHING, Course, Usage, split_free
from kvsim.memory.paged import Paged, PagedAllocator, Table
from kvsim.request import Request
from kvsim.sequence import Sequence
from kvsim.units import ceil_div

_order = attrgetter("order")


class Tables(Table):
    """What the allocator keeps of one sequence.

    lists: each group's blocks, from position `skipped` of its table on. count: positions of the
    tables, the same in all groups that keep tokens. processed: slots whose step has returned.
    num_shareable: how many of the keys another sequence can have.
    """

    __slots__ = ("count", "lists", "num_shareable", "processed", "skipped")

    def __init__(self, keys: list[int], num_shareable: int, num_groups: int) -> None:
        super().__init__(keys)
        self.num_shareable = num_shareable
        self.lists: list[list[int]] = [[] for _ in range(num_groups)]
        self.skipped = [0] * num_groups
        self.count = 0
        self.processed = 0


class HybridAllocator(PagedAllocator):
    """Several block tables a sequence on one pool."""

    def __init__(self, options: Paged, memory: MemorySpec) -> None:
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
        self._keeping = [g for g, group in enumerate(self._groups) if not group.state_bytes]
        self._state_bytes = sum(group.state_bytes for group in self._groups)
        self._pads = [
            self._block_bytes - (group.state_bytes or group.slot_bytes * self.block_size)
            for group in self._groups
        ]
        self._windows = Windows(self._groups, self.block_size, self._hash_lag)
        self._most_tokens = memory.max_in_flight_tokens
        self._used_bytes = 0
        self._pad_bytes = 0
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
        table.count = table.registered = hits.num_blocks
        table.tokens = table.processed = cached_tokens
        for g, blocks in enumerate(hits.blocks):
            fresh = len(blocks) - self.pool.share(blocks)
            self._book(g, fresh, fresh * self.block_size)
            table.lists[g] = blocks
            table.skipped[g] = hits.first[g]
        for g, group in enumerate(self._groups):
            if group.state_bytes:
                table.lists[g] = self.pool.take(1)
                self._book(g, 1, 0)
        self._used_bytes += self._state_bytes
        self._grow(seq, table, ceil_div(num_tokens, self.block_size))
        self._filled(table, num_tokens)
        if self._caching and not seq.num_preemptions:
            self.query_tokens += seq.num_tokens
            self.hit_tokens += cached_tokens
        return True

    def _book(self, g: int, blocks: int, slots: int) -> None:
        """Group g holds `blocks` more (or less) distinct blocks, with so many valid slots."""
        self._pad_bytes += blocks * self._pads[g]
        self._used_bytes += slots * self._groups[g].slot_bytes

    def _grow(self, seq: Sequence, table: Tables, count: int) -> None:
        """Take blocks until every group's table that keeps tokens has `count` positions."""
        more = count - table.count
        for g in self._keeping:
            table.lists[g] += self.pool.take(more)
            self._book(g, more, 0)
        self._grown(seq, table, table.count, count)
        table.count = count

    def extend(self, seq: Sequence, num_tokens: int) -> bool:
        """As promised, but blocks below a window go back even if there is no room."""
        table: Tables = seq.memory
        decoding = seq.decoding
        computed = self._computed(table, self._clock) if decoding else table.tokens
        if self._hash_lag and not decoding:
            computed = table.processed
        self._give_back_below(table, computed)
        count = max(ceil_div(num_tokens, self.block_size), table.count)
        if (count - table.count) * len(self._keeping) > self.pool.num_free:
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
        if self._hash_lag and table.joined == table.base + clock:
            return table.processed
        return table.base + clock - self._hash_lag

    def _give_back_below(self, table: Tables, computed: int) -> None:
        """Blocks that no further token attends to return to the pool."""
        for g, group in enumerate(self._groups):
            skip = skipped_blocks(group.window_tokens, computed, self.block_size)
            more = min(skip, table.count) - table.skipped[g]
            if more > 0:
                self._give_back(g, table.lists[g][:more], more, more * self.block_size)
                del table.lists[g][:more]
                table.skipped[g] += more

    def _give_back(self, g: int, blocks: list[int], num_full: int, slots: int) -> None:
        """Group g returns blocks with `slots` valid slots, the first `num_full` of them full."""
        shared = self.pool.give_back(blocks, num_full if self._caching else 0)
        self._book(g, shared - len(blocks), shared * self.block_size - slots)

    def _filled(self, table: Table, num_tokens: int) -> None:
        assert isinstance(table, Tables)
        self._used_bytes += (num_tokens - table.tokens) * self.token_bytes
        table.tokens = num_tokens
        self._register(table, min(num_tokens // self.block_size, len(table.keys)))

    def _register(self, table: Tables, full: int) -> None:
        """The first `full` blocks hold known content from now on."""
        if full <= table.registered:
            return
        num = len(self._groups)
        for g in self._keeping:
            start = max(table.registered, table.skipped[g])
            blocks = table.lists[g][start - table.skipped[g] : full - table.skipped[g]]
            self.pool.register(blocks, [key * num + g for key in table.keys[start:full]])
        table.registered = full

    # --- decoding ------------------------------------------------------------------------------

    def join(self, seq: Sequence, num_tokens: int) -> None:
        super().join(seq, num_tokens)
        table: Tables = seq.memory
        self._windows.join(seq, table.base, self._clock, table.skipped)

    def leave(self, seq: Sequence) -> None:
        super().leave(seq)
        table: Tables = seq.memory
        self._windows.leave(seq, table.base)
        table.processed = table.tokens - self._hash_lag

    def due(self) -> list[Sequence]:
        """Who takes a block or gives one: both happen in running order."""
        takers = self._buckets[-self._clock % self.block_size]
        return sorted(
            (takers | self._windows.givers(self._clock)).keys() - self._extended, key=_order
        )

    def _forecast(self, limit: int) -> Iterator[tuple[int, int]]:
        """(taken, given): blocks of each step from now on, for at most `limit` steps and as long as
        the rhythm of giving stays. Of those given others may still hold some.
        """
        clock, each = self._clock, len(self._keeping)
        for later in range(clock, clock + min(limit, self._windows.steady_steps(clock))):
            taken = each * len(self._buckets[-later % self.block_size])
            given = self._windows.num_given(later)
            if later == clock and self._extended:
                taken = each * sum(self._takes(seq.memory, clock) for seq in self.due())
                given = 0
            yield taken, given

    def _takes(self, table: Tables, clock: int) -> bool:
        return (table.base + clock) % self.block_size == 0

    def _most_taken(self, steps: int) -> int:
        return self._num_decoding * len(self._keeping) * ceil_div(steps, self.block_size)

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
            if not self.pool.has_shared:
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
            if not (enough and self.pool.has_shared):
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
            for bucket in self._naming
            for other in (seq.memory for seq in bucket)
        )

    def advance(self, steps: int) -> Course:
        jumps = first = second = NOTHING
        slope = self._num_decoding * self.token_bytes
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
            if self._num_naming:
                self._name_filled(clock)
        self._clock += steps
        self._used_bytes += slope * steps
        course = Usage(used=slope, reserved=-slope)
        return Course(course, jumps, first, second, used_rise, allocated_rise)

    def _move(self, clock: int) -> bool:
        """The step at `clock`: whose turn it is gives, then takes. Returns whether anybody did."""
        members = self._buckets[-clock % self.block_size] | self._windows.givers(clock)
        if clock == self._clock:
            members = {seq: None for seq in members if seq not in self._extended}
            self._extended.clear()
        for seq in sorted(members, key=_order):
            table: Tables = seq.memory
            self._give_back_below(table, self._computed(table, clock))
            if self._takes(table, clock):
                self._grow(seq, table, table.count + 1)
        self._windows.passed(clock)
        return bool(members)

    def _books(self) -> tuple[int, int, int, int, int]:
        pool = self.pool
        free, cached = pool.num_free, pool.num_cached_free
        return free, cached, self._used_bytes, self._over_slots, self._pad_bytes

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

    def _name_filled(self, clock: int) -> None:
        """The step at `clock` is scheduled: blocks it fills become known content."""
        bucket = self._naming[(self._hash_lag - clock - 1) % self.block_size]
        for seq in sorted(bucket, key=_order):
            table: Tables = seq.memory
            full = (table.base + clock + 1 - self._hash_lag) // self.block_size
            if full == table.registered + 1:
                self._register(table, full)
                if full == len(table.keys):
                    del bucket[seq]
                    self._num_naming -= 1

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        table: Tables = seq.memory
        del self._live[seq]
        known = table.tokens
        if not seq.finished and table.joined and known > table.joined:
            known -= self._hash_lag
        self._register(table, min(known // self.block_size, len(table.keys)))
        for g, group in enumerate(self._groups):
            skipped = table.skipped[g]
            if group.state_bytes:
                self._give_back(g, table.lists[g], 0, 0)
            else:
                slots = table.tokens - skipped * self.block_size
                self._give_back(g, table.lists[g], table.registered - skipped, slots)
        self._used_bytes -= self._state_bytes
        self._over_slots -= max(0, table.count * self.block_size - seq.final_tokens)
        seq.memory = None
        if self._caching and not seq.finished:
            seq.memory = Tables(table.keys, table.num_shareable, len(self._groups))
        self._hits_memo = None

    # --- the ledger ----------------------------------------------------------------------------

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
        over = self._over_slots * self.token_bytes
        return Usage(
            used=self._used_bytes,
            reserved=held - self._used_bytes - over - self._pad_bytes,
            overprovisioned=over,
            rounding=self._pad_bytes,
            cached=cached,
            metadata=self._metadata,
            external=external,
            short=short,
            idle=idle,
        )

    def check(self) -> None:
        tables: list[tuple[Sequence, Tables]] = [(seq, seq.memory) for seq in self._live]
        self.pool.check(blocks for _, table in tables for blocks in table.lists)
        used, over, pad = self._state_bytes * len(tables), 0, 0
        seen: set[int] = set()
        for seq, table in tables:
            tokens = table.base + self._clock if seq.decoding else table.tokens
            over += max(0, table.count * self.block_size - seq.final_tokens)
            for g, group in enumerate(self._groups):
                blocks, start = table.lists[g], table.skipped[g]
                if not group.state_bytes and len(blocks) != table.count - start:
                    raise InvariantError(f"{seq} holds {len(blocks)} blocks from {start} on")
                fresh = [block not in seen for block in blocks]
                seen.update(blocks)
                pad += sum(fresh) * self._pads[g]
                slots = tokens - start * self.block_size
                slots -= (len(fresh) - sum(fresh)) * self.block_size
                used += slots * group.slot_bytes
        counted = (self._used_bytes, self._over_slots, self._pad_bytes)
        if (used, over, pad) != counted:
            raise InvariantError(f"used, over-provisioned, padding {(used, over, pad)}: {counted}")


def _plus(total: Usage, jump: Usage, times: int) -> Usage:
    return Usage(*(a + b * times for a, b in zip(total, jump, strict=True)))
