"""The ledger of a pool of blocks."""

from kvsim.memory.ledger import Usage, split_free, usage_of
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.assembly import Assembly
from kvsim.memory.paged.block_shape import BlockShape
from kvsim.memory.paged.blocks import OUTPUT, STATE, WINDOW
from kvsim.memory.paged.invariants import check_slots, check_tables
from kvsim.memory.paged.loads import BlockLoads
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
from kvsim.sequence import Sequence


class PoolLedger:
    """Reads the state of a paged allocator into a ledger; changes nothing.

    verifying: sequences that verify drafts in lockstep. loads: blocks under a KV connector.
    """

    def __init__(
        self,
        memory: MemorySpec,
        shape: BlockShape,
        parts: Assembly,
        verifying: VerifyingMembers | None,
        loads: BlockLoads | None,
    ) -> None:
        self._shape, self._one_table = shape, parts.one_table
        self._token_bytes = memory.layout.bytes_per_token
        self._pool, self._tables, self._needs = parts.pool, parts.tables, parts.needs
        self._decoding, self._decoders = parts.decoding, parts.decoders
        self._forks, self._behind, self._live = parts.forks, parts.behind, parts.live
        self._verifying, self._loads = verifying, loads

    def slots(self, seq: Sequence) -> int:
        """Valid slots of a live sequence."""
        if self._verifying is not None and seq in self._verifying:
            return self._verifying.slots(seq)
        return self._decoders.slots(seq)

    def _drafts_of(self, seq: Sequence) -> int:
        """Slots of a live sequence that are allocated for drafts."""
        if self._verifying is not None and seq in self._verifying:
            return self._verifying.drafts_of(seq)
        drafts: int = seq.memory.drafts
        return drafts

    @property
    def saved_bytes(self) -> int | None:
        """See `Allocator.saved_bytes`; None if windows free shared blocks. A block that a copy pins
        and one sequence holds saves nothing.
        """
        if not self._one_table:
            return None
        beside = 0 if self._loads is None else self._loads.num_held_beside
        return (self._pool.num_shared - beside) * self._shape.block_bytes

    def shared_tokens(self, seq: Sequence) -> int:
        """Leading tokens of `seq` that others hold too, in the groups that keep every token.
        Windows and states may have freed theirs.
        """
        return min(self._tables.leading_shared(seq.memory), self.slots(seq))

    @property
    def parts(self) -> Parts:
        """See `Allocator.parts`."""
        tables, kept = self._tables, self._pool.kept
        drafts = tables.draft_slots * self._token_bytes + tables.scratch_bytes
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
        named = tuple(found) if found else NO_PARTS
        return named if self._loads is None else named + self._loads.parts(self.shared_tokens)

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        """See `Allocator.usage`."""
        need = None
        if head is not None:
            need = self._needs.need_of_head(head, self._needs.hits(head), busy=busy)
            need *= self._shape.block_bytes
        tables, shape, pool = self._tables, self._shape, self._pool
        block_bytes, behind = shape.block_bytes, self._left_bytes()
        used, over, pad = tables.used_bytes, tables.over_bytes, tables.pad_bytes
        cached = pool.num_cached_free * block_bytes
        reserved = (shape.usable_blocks - pool.num_free) * block_bytes - used - over - pad
        free = split_free(pool.num_free * block_bytes - cached, cached, need, placeable=True)
        used, over = used - behind, over + behind
        return usage_of((used, reserved, over, pad, cached, 0, shape.metadata_bytes, *free))

    def _left_bytes(self) -> int:
        """Bytes outside sliding windows, summed over all sequences."""
        return 0 if self._behind is None else self._behind.of_all(self._live.seqs)

    def check(self) -> None:
        """See `Allocator.check`."""
        seqs = self._live.seqs
        for seq in seqs:
            self._decoding.catch_up(seq)
        live = ((self.slots(seq), seq.memory) for seq in seqs)
        check_tables(
            self._tables, live, [] if self._loads is None else self._loads.held_by_copies()
        )
        forks = self._forks if self._forks is not None else ()
        own = ((seq.memory, seq.final_tokens) for seq in seqs if seq not in forks)
        check_slots(self._tables, own, sum(map(self._drafts_of, seqs)))
