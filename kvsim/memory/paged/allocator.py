"""Paged KV memory as vLLM keeps it: blocks of one pool, block tables, prefix cache.

Semantics of vLLM 0.33 (v1/core/kv_cache_manager.py, single_type_kv_cache_manager.py), one group of
layers: a sequence holds ceil(slots / block_size) blocks; full blocks become known content when they
are allocated; a lookup at admission takes the longest run of known blocks below the last token.

Nothing is touched per sequence per step: decoders advance together, in cohorts that start new
blocks in the same steps (cohorts.py).
"""

from operator import attrgetter
from typing import TYPE_CHECKING

from kvsim.memory.allocator import Allocator, MemorySpec, Place, Refusal
from kvsim.memory.ledger import NOTHING, Course, Usage, split_free
from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.cohorts import Cohort, Cohorts
from kvsim.memory.paged.content import ContentKeys
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence

if TYPE_CHECKING:
    from kvsim.memory.paged.options import Paged

_order = attrgetter("order")


class Table:
    """What the allocator keeps of one sequence.

    blocks: its block table. tokens: slots it holds while it does not decode.
    base: slots minus clock while it decodes. joined: slots it began to decode with.
    returned: slots of which the content was known then, or will be with its first step.
    keys: content keys of its leading full blocks. registered: how many blocks carry theirs.
    """

    __slots__ = ("base", "blocks", "joined", "keys", "registered", "returned", "tokens")

    def __init__(self, keys: list[int]) -> None:
        self.blocks: list[int] = []
        self.tokens = 0
        self.base = 0
        self.joined = 0
        self.returned = 0
        self.keys = keys
        self.registered = 0


class PagedAllocator(Allocator):
    """The pool, the tables and the prefix cache. Needs: sequences released before they are
    admitted again.

    null_blocks: blocks of the pool that nobody can have.
    """

    null_blocks = 1
    default_watermark = 0.0

    def __init__(self, options: "Paged", memory: MemorySpec) -> None:
        self.block_size = options.block_size
        self.capacity_bytes = memory.capacity_bytes
        self.token_bytes = memory.layout.bytes_per_token
        self._block_bytes = self.token_bytes * options.block_size
        num_blocks = memory.capacity_bytes // self._block_bytes
        usable = num_blocks - self.null_blocks
        if usable < 1:
            raise InputError(
                "the KV pool holds no block beside the null block"
                if self.null_blocks
                else "the KV pool holds no block",
                where="allocator.block_size",
                value=f"{num_blocks} blocks of {options.block_size} tokens",
                limit=f"at least {self.null_blocks + 1}",
                remedy="give the pool more memory or take smaller blocks",
            )
        self._metadata = memory.capacity_bytes - usable * self._block_bytes
        self._caching = options.enable_prefix_caching
        watermark = self.default_watermark if options.watermark is None else options.watermark
        self._watermark_blocks = int(watermark * num_blocks)
        self._hash_lag = memory.hash_lag
        self._max_model_len = memory.max_model_len
        self.pool = BlockPool(usable + 1, blank_first=memory.semantics != "vllm-0.11")
        self._content = ContentKeys(options.block_size)
        self._clock = 0
        self._decoders = Cohorts(options.block_size)
        self._naming = Cohorts(options.block_size)  # of them, whose content others can name
        self._extended: set[Sequence] = set()
        self._live: dict[Sequence, None] = {}
        self._used_slots = 0
        self._over_slots = 0
        self._memo: tuple[Sequence, int, list[int]] | None = None  # _hit_blocks: seq, version

    # --- admission -----------------------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        slots = request.prompt_tokens + request.output_tokens - 1
        need, usable = ceil_div(slots, self.block_size), self.pool.num_blocks - 1
        if need <= usable:
            return None
        return Refusal(
            "more KV blocks than the pool has",
            need,
            usable,
            f"blocks of {self.block_size} tokens",
            "shorten the request or enlarge the pool",
        )

    def _keys_of(self, seq: Sequence) -> list[int]:
        """Content keys of a waiting sequence, interned once; cached until it is admitted."""
        if not self._caching:
            return []
        if isinstance(seq.memory, Table):
            return seq.memory.keys
        keys = self._content.of(seq)
        seq.memory = Table(keys)
        return keys

    def _hit_blocks(self, seq: Sequence) -> list[int]:
        """Blocks the cache holds for `seq`: the longest run, ending before its last token."""
        memo = self._memo
        if memo is not None and memo[0] is seq and memo[1] == self.pool.version:
            return memo[2]
        most = (seq.num_tokens - 1) // self.block_size
        blocks = self.pool.find(self._keys_of(seq)[:most])
        self._memo = (seq, self.pool.version, blocks)
        return blocks

    def cached_tokens(self, seq: Sequence) -> int:
        return len(self._hit_blocks(seq)) * self.block_size

    def _blocks_needed(self, hits: list[int], tokens: int, *, busy: bool) -> int:
        """Free blocks an admission with these hits takes or asks to be there."""
        watermark = self._watermark_blocks if busy else 0
        revived = self.pool.num_free_of(hits)
        return max(ceil_div(tokens, self.block_size) - len(hits), 0) + revived + watermark

    def admit(
        self, seq: Sequence, num_tokens: int, *, cached_tokens: int, reserve_tokens: int, busy: bool
    ) -> bool:
        keys = self._keys_of(seq)
        hits = self._hit_blocks(seq)
        if self._blocks_needed(hits, reserve_tokens, busy=busy) > self.pool.num_free:
            return False
        table: Table = seq.memory if isinstance(seq.memory, Table) else Table(keys)
        seq.memory = table
        self._live[seq] = None
        self._used_slots -= self.pool.share(hits) * self.block_size
        table.blocks = hits + self.pool.take(ceil_div(num_tokens, self.block_size) - len(hits))
        table.registered = len(hits)
        self._grown(seq, table, 0, len(table.blocks))
        self._filled(table, num_tokens)
        if self._caching and not seq.num_preemptions:  # vLLM counts resumptions apart
            self.query_tokens += seq.num_tokens
            self.hit_tokens += cached_tokens
        return True

    def extend(self, seq: Sequence, num_tokens: int) -> bool:
        table: Table = seq.memory
        before = len(table.blocks)
        need = ceil_div(num_tokens, self.block_size) - before
        if need > self.pool.num_free:
            return False
        if need > 0:
            table.blocks += self.pool.take(need)
            self._grown(seq, table, before, before + need)
        if seq.decoding:
            self._extended.add(seq)
        else:
            self._filled(table, num_tokens)
        return True

    def _grown(self, seq: Sequence, table: Table, before: int, after: int) -> None:
        """Book the slots of a last block that the sequence will never fill."""
        last = ceil_div(seq.final_tokens, self.block_size)
        if before < last <= after:
            self._over_slots += last * self.block_size - seq.final_tokens

    def _filled(self, table: Table, num_tokens: int) -> None:
        """The first `num_tokens` slots are valid; their full blocks become known content."""
        self._used_slots += num_tokens - table.tokens
        table.tokens = num_tokens
        full = min(self._known(table) // self.block_size, len(table.keys))
        if full > table.registered:
            new = slice(table.registered, full)
            self.pool.register(table.blocks[new], table.keys[new])
            table.registered = full

    def _known(self, table: Table) -> int:
        """Slots whose content is known: under overlapping steps, a token that was decoded last
        has not returned yet.
        """
        decoded = table.tokens > table.returned > 0
        return table.tokens - self._hash_lag * decoded

    # --- decoding ------------------------------------------------------------------------------

    def join(self, seq: Sequence, num_tokens: int) -> None:
        table: Table = seq.memory
        table.base = num_tokens - self._clock
        passed_over = table.joined > 0  # its last token has returned meanwhile
        table.joined = num_tokens
        table.returned = num_tokens + passed_over
        self._decoders.join(seq, table.base)
        if table.registered < len(table.keys):
            self._naming.join(seq, table.base)

    def leave(self, seq: Sequence) -> None:
        table: Table = seq.memory
        self._decoders.leave(seq, table.base)
        self._naming.leave(seq, table.base)
        self._extended.discard(seq)
        table.tokens = table.base + self._clock

    def due(self) -> list[Sequence]:
        cohort = self._decoders.at(self._clock)
        waiting = cohort.keys() - self._extended if self._extended else cohort
        return sorted(waiting, key=_order)

    def steps_that_fit(self, limit: int) -> int:
        return self._steps_within(self.pool.num_free, limit)

    def spare_steps(self, head: Sequence, limit: int, *, busy: bool) -> int:
        spare = self.pool.num_free - self._head_blocks(head, busy=busy)
        return limit if spare < 0 else self._steps_within(spare, limit)

    def _steps_within(self, blocks: int, limit: int) -> int:
        """For how many steps `blocks` blocks suffice."""
        return self._decoders.steps_within(blocks, self._clock, limit)

    def advance(self, steps: int) -> Course:
        evicted, over = self.pool.num_evicted, self._over_slots
        taken = [0, 0, 0]  # blocks, their step, their step * (step - 1) / 2
        lapsed = [0, 0, 0]  # cached blocks among them
        overs = [0, 0, 0]  # slots that will stay empty
        for t, cohort in self._decoders.crossings(self._clock, steps):
            count = self._cross(t, cohort)
            weights = (1, t, t * (t - 1) // 2)
            new_evicted, new_over = self.pool.num_evicted, self._over_slots
            for i, weight in enumerate(weights):
                taken[i] += count * weight
                lapsed[i] += (new_evicted - evicted) * weight
                overs[i] += (new_over - over) * weight
            evicted, over = new_evicted, new_over
        if self._naming.num:
            self._name(steps)
        self._extended.clear()
        self._clock += steps
        self._used_slots += self._decoders.num * steps
        slope = self._decoders.num * self.token_bytes
        jumps, first, second = map(self._moment, taken, lapsed, overs)
        return Course(Usage(used=slope, reserved=-slope), jumps, first, second)

    def _moment(self, taken: int, lapsed: int, over: int) -> Usage:
        if not taken:
            return NOTHING
        over_bytes = over * self.token_bytes
        return Usage(
            reserved=taken * self._block_bytes - over_bytes,
            overprovisioned=over_bytes,
            cached=-lapsed * self._block_bytes,
            idle=-(taken - lapsed) * self._block_bytes,
        )

    def _cross(self, t: int, cohort: Cohort) -> int:
        """Every sequence of `cohort` takes its next block at step t; returns how many took one."""
        members = sorted(cohort, key=_order) if len(cohort) > 1 else list(cohort)
        if t == 1 and self._extended:
            members = [seq for seq in members if seq not in self._extended]
        size, clock = self.block_size, self._clock
        for seq, block in zip(members, self.pool.take(len(members)), strict=True):
            table: Table = seq.memory
            table.blocks.append(block)
            slots = len(table.blocks) * size
            if slots >= seq.final_tokens:
                self._over_slots += slots - seq.final_tokens
        if members and len(members[0].memory.blocks) * size < members[0].memory.base + clock + t:
            raise InvariantError(f"{members[0]} decodes into a slot it does not hold")
        return len(members)

    def _name(self, steps: int) -> None:
        """Register the blocks that decoders with nameable output fill during these steps."""
        known = self._clock - self._hash_lag
        for t in range(1, steps + 1):
            for seq in sorted(self._naming.at(known + t), key=_order):
                self._name_next(seq, known + t)

    def _name_next(self, seq: Sequence, clock: int) -> None:
        """Register the block of `seq` whose content is known from `clock` on, unless it was."""
        table: Table = seq.memory
        index = (table.base + clock) // self.block_size - 1
        if index == table.registered:
            self.pool.register((table.blocks[index],), (table.keys[index],))
            table.registered += 1
            if table.registered == len(table.keys):
                self._naming.leave(seq, table.base)

    def pass_turns(self, order: int) -> None:
        known = self._clock - self._hash_lag + 1
        for seq in sorted(self._naming.at(known), key=_order) if self._naming.num else ():
            if seq.order < order:
                self._name_next(seq, known)

    def may_gain(self, head: Sequence) -> bool:
        hits, keys = self._hit_blocks(head), self._keys_of(head)
        if self.pool.has_spare(keys[: len(hits)]):
            return True
        most = min(len(keys), (head.num_tokens - 1) // self.block_size)
        return any(
            table.keys[table.registered] == keys[table.registered]
            for table in (seq.memory for seq in self._naming)
            if table.registered < most
        )

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        table: Table = seq.memory
        del self._live[seq]
        known = table.tokens if seq.finished else self._known(table)
        full = known // self.block_size if self._caching else 0
        if self._caching and not seq.finished:
            self._name_private(table, seq)
        new = slice(table.registered, min(full, len(table.keys)))
        self.pool.register(table.blocks[new], table.keys[new])
        shared = self.pool.give_back(table.blocks, full)
        self._used_slots += shared * self.block_size - table.tokens
        slots = len(table.blocks) * self.block_size
        if slots >= seq.final_tokens:
            self._over_slots -= slots - seq.final_tokens
        seq.memory = Table(table.keys) if self._caching and not seq.finished else None
        self._memo = None

    def _name_private(self, table: Table, seq: Sequence) -> None:
        """Give a preempted sequence keys under which it can find its own blocks again.

        Nobody else can name private content, so it needs no key before this moment.
        """
        missing = seq.final_tokens // self.block_size - len(table.keys)
        if missing > 0:
            table.keys = [*table.keys, *self._content.private(missing)]

    # --- the ledger ----------------------------------------------------------------------------

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        blocks = ceil_div(tokens - self.held_tokens(seq), self.block_size)
        return max(0, blocks) * self.block_size

    @property
    def saved_bytes(self) -> int | None:
        return self.pool.num_shared * self._block_bytes

    def held_tokens(self, seq: Sequence) -> int:
        return len(seq.memory.blocks) * self.block_size if seq.memory else 0

    def place(self, seq: Sequence) -> Place:
        return Place(blocks=seq.memory.blocks)

    def _head_blocks(self, head: Sequence, *, busy: bool) -> int:
        return self._blocks_needed(self._hit_blocks(head), head.num_tokens, busy=busy)

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        pool, size = self.pool, self._block_bytes
        held_slots = (pool.num_blocks - 1 - pool.num_free) * self.block_size
        cached = pool.num_cached_free * size
        free = pool.num_free * size - cached
        need = None if head is None else self._head_blocks(head, busy=busy) * size
        external, short, idle = split_free(free, cached, need, placeable=True)
        used, over = self._used_slots, self._over_slots
        return Usage(
            used=used * self.token_bytes,
            reserved=(held_slots - used - over) * self.token_bytes,
            overprovisioned=over * self.token_bytes,
            cached=cached,
            metadata=self._metadata,
            external=external,
            short=short,
            idle=idle,
        )

    def check(self) -> None:
        self.pool.check(seq.memory.blocks for seq in self._live)
        slots = shared = over = 0
        seen: set[int] = set()
        for seq in self._live:
            table: Table = seq.memory
            tokens = table.base + self._clock if seq.decoding else table.tokens
            slots += tokens
            shared += sum(block in seen for block in table.blocks)
            seen.update(table.blocks)
            over += max(0, len(table.blocks) * self.block_size - seq.final_tokens)
        counted = (self._used_slots, self._over_slots)
        if (slots - shared * self.block_size, over) != counted:
            raise InvariantError(f"used and over-provisioned slots miscounted as {counted}")
