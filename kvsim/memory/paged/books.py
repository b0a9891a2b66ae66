"""The ledger of a pool of blocks, and what each sequence holds of the pool."""

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import Allocator, Place
from kvsim.memory.ledger import Usage, split_free, usage_of
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.assembly import Assembly
from kvsim.memory.paged.blocks import OUTPUT, STATE, WINDOW, Extent, Table
from kvsim.memory.paged.invariants import check_slots, check_tables
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.paged.verifying import VerifyingMembers
from kvsim.memory.parts import (
    CACHED_OUTPUTS,
    CACHED_STATES,
    CACHED_WINDOWS,
    DRAFT_SLOTS,
    LEFT_BEHIND,
    NO_PARTS,
    STATES,
    Parts,
)
from kvsim.memory.prefix import CacheTotals
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class BlockLedger(Allocator):
    """The reading half of a paged allocator; admission, growth and release are in a subclass.

    block_size: tokens in a block, the smallest of all groups. pool: the blocks. one_table: all
    layers share one table, which keeps every token.
    """

    def __init__(self, memory: MemorySpec, shape: BlockShape, parts: Assembly) -> None:
        self._shape = shape
        self.block_size = shape.block_size
        self.capacity_bytes = memory.capacity_bytes
        self.token_bytes = memory.layout.bytes_per_token
        self.one_table = parts.one_table
        self.pool, self._tables, self._shapes = parts.pool, parts.tables, parts.tables.shapes
        self._cache, self._needs, self._sizes = parts.cache, parts.needs, parts.sizes
        self._decoding, self._decoders = parts.decoding, parts.decoders
        self._forks, self._behind = parts.forks, parts.behind
        self._verifying: VerifyingMembers | None = None
        self._live: dict[Sequence, None] = {}

    @property
    def saved_bytes(self) -> int | None:
        """See `PrefixPromise.saved_bytes`; None if windows free shared blocks."""
        return self.pool.num_shared * self._shape.block_bytes if self.one_table else None

    def cache_totals(self) -> CacheTotals:
        return self._cache.totals

    @property
    def pads_blocks(self) -> bool:
        return not self.one_table

    @property
    def tells_cached(self) -> bool:
        return True

    @property
    def parts(self) -> Parts:
        tables, kept = self._tables, self.pool.kept
        drafts = tables.draft_slots * self.token_bytes + tables.scratch_bytes
        block_bytes, behind = self._shape.block_bytes, self._left_bytes()
        found: list[tuple[int, int]] = []
        if behind:
            found.append((LEFT_BEHIND, behind))
        if drafts:
            found.append((DRAFT_SLOTS, drafts))
        if tables.state_bytes:
            found.append((STATES, tables.state_bytes))
        if kept[OUTPUT]:
            found.append((CACHED_OUTPUTS, kept[OUTPUT] * block_bytes))
        if kept[WINDOW]:
            found.append((CACHED_WINDOWS, kept[WINDOW] * block_bytes))
        if kept[STATE]:
            found.append((CACHED_STATES, kept[STATE] * block_bytes))
        return tuple(found) if found else NO_PARTS

    @property
    def copied_bytes(self) -> int:
        return self._forks.num_copies * self._shape.block_bytes if self._forks is not None else 0

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
        """Positions of the table of `seq` in the first group of layers."""
        self._decoding.catch_up(seq)
        return self._tables.length(seq.memory)

    def shared_tokens(self, seq: Sequence) -> int:
        """Shared tokens in the groups that keep every token; windows and states may have freed
        theirs.
        """
        shared = self._tables.leading_shared(seq.memory)
        return min(shared, self._slots(seq))

    def _slots(self, seq: Sequence) -> int:
        """Valid slots of a live sequence."""
        if self._verifying is not None and seq in self._verifying:
            return self._verifying.slots(seq)
        return self._decoders.slots(seq)

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        units = ceil_div(tokens - self.granted_tokens(seq), self._sizes.unit)
        return max(0, units) * self._sizes.unit

    @property
    def block_bytes(self) -> int:
        """Bytes of a block of `pool`."""
        return self._shape.block_bytes

    def blocks_of(self, seq: Sequence) -> list[int]:
        """The blocks of a running sequence, group by group, without freed ones."""
        return self._tables.blocks_of(seq.memory) if seq.memory else []

    def place(self, seq: Sequence) -> Place:
        return Place(blocks=self.blocks_of(seq)) if self.one_table else super().place(seq)

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        need = None
        if head is not None:
            need = self._needs.need_of_head(head, self._needs.hits(head), busy=busy)
            need *= self._shape.block_bytes
        tables, shape, pool = self._tables, self._shape, self.pool
        block_bytes, behind = shape.block_bytes, self._left_bytes()
        used, over, pad = tables.used_bytes, tables.over_bytes, tables.pad_bytes
        cached = pool.num_cached_free * block_bytes
        reserved = (shape.usable_blocks - pool.num_free) * block_bytes - used - over - pad
        free = split_free(pool.num_free * block_bytes - cached, cached, need, placeable=True)
        used, over = used - behind, over + behind
        return usage_of((used, reserved, over, pad, cached, 0, shape.metadata_bytes, *free))

    def _left_bytes(self) -> int:
        """Bytes outside the windows of their sequences."""
        return 0 if self._behind is None else self._behind.of_all(self._live)

    def check(self) -> None:
        for seq in self._live:
            self._decoding.catch_up(seq)
        live = ((self._slots(seq), seq.memory) for seq in self._live)
        check_tables(self._tables, live, self._held_by_copies())
        forks = self._forks if self._forks is not None else ()
        own = ((seq.memory, seq.final_tokens) for seq in self._live if seq not in forks)
        check_slots(self._tables, own, sum(map(self._drafts_of, self._live)))

    def _held_by_copies(self) -> list[Extent]:
        """Blocks that copies to host memory hold, once for each copy."""
        return []

    def _drafts_of(self, seq: Sequence) -> int:
        """Slots of a live sequence that are allocated for drafts."""
        if self._verifying is not None and seq in self._verifying:
            return self._verifying.drafts_of(seq)
        drafts: int = seq.memory.drafts
        return drafts
