"""Block tables of one group of layers whose sequences verify drafts in step with each other."""

from typing import Any

from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.lookahead import Lookahead
from kvsim.memory.paged.prefix_cache import PrefixCache
from kvsim.memory.paged.slot_counts import SlotCounts
from kvsim.memory.paged.table import BlockTable
from kvsim.memory.paged.verifying.member import Member
from kvsim.memory.paged.verifying.members import VerifyingMembers
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence
from kvsim.speculation import Speculation


class VerifyingTables(VerifyingMembers):
    """Changes the tables of members, pool and counts."""

    def __init__(
        self,
        pool: BlockPool,
        cache: PrefixCache[list[int]],
        counts: SlotCounts,
        block_size: int,
        lookahead: Lookahead,
        speculation: Speculation,
        lag: int,
    ) -> None:
        super().__init__(pool, lookahead, lag)
        self._blocks, self._cache, self._counts, self._size = pool, cache, counts, block_size
        self._redrafted = speculation.redrafted_tokens
        self._hash_lookahead = speculation.hash_lookahead

    def _foresee(self, seq: Sequence, member: Member) -> None:
        table: BlockTable = seq.memory
        since, size, ahead = member.since, self._size, self._ahead
        takes, believed = member.takes, member.believed
        most = (believed[member.num_steps - 1] + ahead - 1) // size + 1
        for end in range(len(table.blocks) * size - ahead, most * size - ahead, size):
            clock = since + member.first_believed(end)
            takes[clock] = takes.get(clock, 0) + 1
        if table.registered < len(table.keys):
            self._foresee_names(table, member)

    def _foresee_names(self, table: BlockTable, member: Member) -> None:
        """When blocks of a member that have keys become known, at the latest."""
        since, ahead, again = member.since, self._hash_lookahead, self._redrafted
        for blocks in range(table.registered + 1, len(table.keys) + 1):
            end = blocks * self._size
            scheduled = member.first_known(end + max(ahead, again))
            if scheduled < member.num_steps:
                member.takes.setdefault(since + scheduled, 0)
                member.knows.append(since + scheduled)
            returned = member.first_filling(max(end + again, end + ahead - 1))
            if returned < member.num_steps:
                member.learns.append(since + returned)

    def _move(self, seq: Sequence, member: Member, step: int) -> bool:
        table: BlockTable = seq.memory
        before, size = len(table.blocks), self._size
        count = ceil_div(member.believed[step] + self._ahead, size) - before
        if count > 0:
            if count > self._blocks.num_free:
                return False
            table.blocks += self._blocks.take(count)
            self._counts.grow(seq.final_tokens, before, before + count, size)
        known = member.known(step)
        if known >= table.cover_at:
            self._cache.cover(table, known, known)
        return True

    def _cover(self, table: Any, tokens: int, known: int, *, in_step: bool) -> None:
        self._cache.cover(table, tokens, known, in_step=in_step)

    def _book(self, new_slots: int, more_drafts: int) -> None:
        self._counts.used += new_slots
        self._counts.drafts += more_drafts

    def steps_alike(self, head: Sequence, limit: int) -> int:
        hits = self._cache.hits(head)
        if self._cache.may_gain(head, len(hits)):
            return 0
        if self._cache.table_of(head).num_shareable:  # what it hits may be made by members
            limit = self._steps_unknowing(limit)
        return self._steps_within(0, limit) if hits else limit  # which whoever takes may forget
