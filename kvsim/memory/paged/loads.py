"""Blocks of sequences that load KV from outside of the device, and blocks that copies hold (vLLM
0.33, v1/core/sched/scheduler.py: WAITING_FOR_REMOTE_KVS).
"""

from collections.abc import Callable

from kvsim.memory.allocator import Demand
from kvsim.memory.loading import FreeBlock, NamedState
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.assembly import Assembly
from kvsim.memory.paged.blocks import NOTHING_FOUND, Extent, Found, Table
from kvsim.memory.paged.group_lookup import Hits
from kvsim.memory.paged.session_hint import NO_HINT
from kvsim.memory.parts import ARRIVING, KEPT_FOR_READERS, Parts
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


class BlockLoads:
    """The blocks of a paged allocator under a KV connector: see
    `kvsim.memory.loading.LoadingPromise`.

    copied: the blocks that offload copies pin; None if copies pin none.
    """

    def __init__(self, memory: MemorySpec, parts: Assembly) -> None:
        self._pool, self._tables, self._shapes = parts.pool, parts.tables, parts.tables.shapes
        self._needs, self._names, self._drafts = parts.needs, parts.names, parts.drafts
        self._cache, self._decoding, self._sizes = parts.cache, parts.decoding, parts.sizes
        self._live, self._token_bytes = parts.live, memory.layout.bytes_per_token
        self._unloaded: dict[Sequence, int] = {}  # bytes of slots left behind by windows then
        self._arriving: dict[Sequence, int] = {}  # tokens being loaded
        self._kept: dict[Sequence, None] = {}  # finished, not read yet
        self.copied = CopiedBlocks(parts) if memory.holds else None
        if not memory.unwatched:  # unwatched: no connector reads block ids
            self._names.tell_states()

    def start_load(self, seq: Sequence, demand: Demand, kept_blocks: int) -> bool:
        needs, free, busy = self._needs, self._pool.num_free, demand.busy
        hits = needs.hits_of_load(seq, demand.num_tokens, demand.cached_tokens)
        loaded = demand.num_tokens
        if needs.need(seq, hits, demand.fit_tokens, whole=True, busy=busy, loaded=loaded) > free:
            return False
        if self._names.is_being_made(hits):
            return False
        drafted = self._drafts.speculates  # a load takes no slots for drafts
        need = needs.need(seq, hits, demand.num_tokens, whole=drafted, busy=busy)
        kept_blocks += self._drafted_blocks
        left_out, left_out_bytes = self._tables.left_out(hits.tokens, demand.num_tokens)
        if need - left_out > free - kept_blocks:
            return False
        hits = needs.without_states(hits)  # the state at the end of the load takes their place
        table = self._live.open(seq, hits)
        if self._shapes.slides:
            self._tables.give_back_below(table, demand.num_tokens)
        units, states = self._live.room(demand.num_tokens)
        if drafted:
            units = ceil_div(demand.num_tokens, self._sizes.unit)
        self._decoding.grow(seq, table, units, states, loaded_tokens=demand.num_tokens)
        if left_out_bytes:  # booked as left behind before these slots are valid
            self._unloaded[seq] = left_out_bytes
            self._tables.used_bytes += left_out_bytes
        self._arriving[seq] = demand.num_tokens - hits.tokens
        table.computed = hits.tokens
        self._cache.admitted(seq, hits.tokens, [])
        return True

    def full_hit_tokens(self, seq: Sequence) -> int:
        return self._cache.hits_apart(seq).tokens

    def end_load(self, seq: Sequence, num_tokens: int) -> None:
        self._arrived(seq)
        self._live.filled(seq, num_tokens, checkpoint=False)

    def name_returned(self, seq: Sequence, num_tokens: int) -> None:
        self.end_load(seq, num_tokens)
        self._names.in_step.clear()  # no step computes these states

    def _arrived(self, seq: Sequence) -> None:
        self._tables.used_bytes -= self._unloaded.pop(seq, 0)
        self._arriving.pop(seq, None)

    def forget(self, seq: Sequence) -> None:
        """Drop all records of a sequence that is about to release its memory."""
        self._arrived(seq)
        self._kept.pop(seq, None)

    def resume(self, seq: Sequence, demand: Demand) -> bool:
        free, table = self._pool.num_free, seq.memory
        if self._need_beside(seq, demand.fit_tokens, whole=True, busy=demand.busy) > free:
            return False
        if self._need_beside(seq, demand.num_tokens, whole=False, busy=demand.busy) > free:
            return False
        units, states = self._live.room(demand.num_tokens)
        self._decoding.grow(seq, table, units, states)
        self._live.filled(seq, demand.num_tokens, checkpoint=False)
        table.computed = demand.cached_tokens
        return True

    def leave_behind(self, seq: Sequence) -> None:
        self._cache.finished(seq.memory, seq.final_tokens)
        if self._shapes.slides:
            self._tables.give_back_below(seq.memory, seq.memory.tokens)

    def release_late(self, seq: Sequence) -> None:
        self.forget(seq)
        self._live.close(seq, last_first=True)

    def keep_for_reader(self, seq: Sequence) -> None:
        self._kept[seq] = None

    def parts(self, shared_tokens: Callable[[Sequence], int]) -> Parts:
        """Bytes being loaded, and bytes held for transfer to another engine. shared_tokens: gives
        the leading slots of a sequence that others hold too.
        """
        found: Parts = ()
        if self._arriving:
            coming = sum(self._arriving.values()) * self._token_bytes
            found += ((ARRIVING, coming - sum(self._unloaded.values())),)
        if self._kept:
            kept = 0
            for seq in self._kept:
                table: Table = seq.memory
                kept += (table.tokens - shared_tokens(seq)) * self._token_bytes
                kept -= self._tables.left_bytes(table)
            found += ((KEPT_FOR_READERS, max(0, kept)),)
        return found

    def lacking_blocks(self, seq: Sequence, num_tokens: int) -> int:
        tokens = num_tokens + self._drafted_tokens
        return self._need_beside(seq, tokens, whole=True, busy=False)

    def blocks_to_load(self, seq: Sequence) -> tuple[int, int]:
        num = len(self._sizes.blocks)
        held = Hits(0, (0,) * num, (NOTHING_FOUND,) * num)
        tokens = seq.num_tokens
        need = self._needs.need(seq, held, tokens, whole=True, busy=False, loaded=tokens)
        return need + self._drafted_blocks, self._pool.num_free

    @property
    def _drafted_tokens(self) -> int:
        """Slots that the next step of a sequence needs after its known tokens, for one token and
        its drafts; 0 without drafts.
        """
        drafts = self._drafts
        return 1 + drafts.tokens + drafts.slots if drafts.speculates else 0

    @property
    def _drafted_blocks(self) -> int:
        """Blocks of `_drafted_tokens` slots that start at the beginning of a block."""
        return ceil_div(self._drafted_tokens, self._sizes.unit)

    def _need_beside(self, seq: Sequence, tokens: int, *, whole: bool, busy: bool) -> int:
        """Number of blocks that a sequence needs beyond those in its table."""
        num = len(self._sizes.blocks)
        held = Hits(seq.memory.count * self._sizes.unit, (0,) * num, (NOTHING_FOUND,) * num)
        begun = seq.memory.begun
        need = self._needs.need(seq, held, tokens, whole=whole, busy=busy, begun=begun)
        return max(0, need)

    def junction_tokens(self, seq: Sequence) -> int:
        table: Table = seq.memory
        return table.junction_tokens

    def take_named_states(self) -> dict[Sequence, list[NamedState]]:
        named = self._names.take_named_states()
        if not named:
            return {}
        owners = {seq.memory: seq for seq in self._live.seqs}
        found: dict[Sequence, list[NamedState]] = {}
        for g, table, number, tokens in sorted(named, key=lambda each: each[0]):
            owner = owners.get(table)
            if owner is not None:
                found.setdefault(owner, []).append(NamedState(g, number, tokens))
        return found

    def held_blocks(self, seq: Sequence) -> list[int]:
        self._decoding.catch_up(seq)
        return self._tables.held_blocks(seq.memory)

    def tables_of(self, seq: Sequence) -> tuple[list[list[int]], list[int]]:
        self._decoding.catch_up(seq)
        table: Table = seq.memory
        return self._tables.numbers_by_group(table), table.skipped

    # --- what copies hold ----------------------------------------------------------------------

    @property
    def num_held_beside(self) -> int:
        """Number of block references by copies, without the one that is a block's only reason to be
        held.
        """
        return 0 if self.copied is None else self.copied.num_beside

    def held_by_copies(self) -> list[Extent]:
        """Blocks that copies pin, each once for every copy."""
        return [] if self.copied is None else self.copied.listed()


class CopiedBlocks:
    """Blocks that offload copies pin in addition to sequences: see
    `kvsim.memory.loading.HoldingPromise`. All groups have blocks of the same number of tokens.
    """

    def __init__(self, parts: Assembly) -> None:
        self._pool, self._tables = parts.pool, parts.tables
        self._cache, self._decoding = parts.cache, parts.decoding
        self._num_groups = len(parts.sizes.blocks)
        self._numbered: dict[int, Extent] = {}
        parts.pool.numbered = self._numbered
        self._copied: dict[Extent, int] = {}  # each with the number of copies

    @property
    def num_beside(self) -> int:
        """Number of block references by copies, without the first reference of a block that only
        copies hold.
        """
        return sum(num - (block.owners == num) for block, num in self._copied.items())

    def listed(self) -> list[Extent]:
        """The pinned blocks, each once for every copy."""
        return [block for block, num in self._copied.items() for _ in range(num)]

    def keys_of(self, seq: Sequence, start: int, end: int, group: int) -> list[int]:
        keys = self._cache.table_of(seq).runs.listed(start, end)
        return [key * self._num_groups + group for key in keys]

    def named_blocks(
        self, seq: Sequence, start: int, end: int, group: int
    ) -> list[tuple[int, Extent] | None]:
        self._decoding.catch_up(seq)
        table: Table = seq.memory
        parts = table.parts[group]
        last, known = parts[-1][0] if parts else -1, len(table.runs)
        found: list[tuple[int, Extent] | None] = []
        for place in range(start, min(end, last + 1)):
            block = table.block_at(group, place)
            if block is None and place < known:
                block = self._pool.block_of(group, table.runs.at(place))
            found.append(self._named(block))
        return found

    def named_block(self, number: int) -> tuple[int, Extent] | None:
        block = self._numbered.get(number)
        return self._named(block if block is not None and block.blocks else None)  # else evicted

    def _named(self, block: Extent | None) -> tuple[int, Extent] | None:
        if block is None or block.key < 0:
            return None
        return self._key(block), block

    def _key(self, block: Extent) -> int:
        """The key of a block among all groups; -1 if its content has none."""
        return block.key * self._num_groups + block.group if block.key >= 0 else -1

    def still_free(self, block: FreeBlock) -> FreeBlock | None:
        if block.block is not None and block.block.waits:
            return block
        if block.number in self._pool.front.numbers():
            return FreeBlock(block.number, -1, None)
        extent = self._pool.back.block(block.number)
        return None if extent is None else self._free(extent)

    def free_blocks(self, after: FreeBlock | None, most: int) -> list[FreeBlock]:
        found: list[FreeBlock] = []
        if after is None or after.block is None:
            blank = self._pool.front.numbers()
            start = 0 if after is None else blank.index(after.number) + 1
            found = [FreeBlock(number, -1, None) for number in blank[start : start + most]]
        extent = None if after is None else after.block
        behind = self._pool.back.after(extent, most - len(found))
        return found + [self._free(each) for each in behind]

    def hold(self, blocks: list[Extent]) -> None:
        for block in blocks:
            if not block.owners:
                self._tables.held_for_copy(block.group, 1)
            self._pool.share(Found(1, 0, [(block, 1)]), 0, [])
            self._copied[block] = self._copied.get(block, 0) + 1

    def let_go(self, blocks: list[Extent]) -> None:
        for block in blocks:
            if block.owners == 1:
                self._tables.held_for_copy(block.group, -1)
            if self._copied[block] == 1:
                del self._copied[block]
            else:
                self._copied[block] -= 1
            why = self._tables.why[block.group]
            self._pool.give_back_singly([(0, block, 1)], why, block.num_prompt, (), hint=NO_HINT)
        self._pool.given_back()

    def _free(self, extent: Extent) -> FreeBlock:
        return FreeBlock(extent.blocks[0], self._key(extent), extent)
