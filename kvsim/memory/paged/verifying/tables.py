"""Block tables of one group of layers whose sequences verify drafts in step with each other."""

from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.lookahead import Lookahead
from kvsim.memory.paged.prefix_cache import PrefixCache
from kvsim.memory.paged.slot_counts import SlotCounts
from kvsim.memory.paged.table import BlockTable
from kvsim.memory.paged.verifying.member import Member
from kvsim.memory.paged.verifying.members import VerifyingMembers
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


class VerifyingTables(VerifyingMembers):
    """Changes the tables of members, pool and counts."""

    def __init__(
        self,
        pool: BlockPool,
        cache: PrefixCache[list[int]],
        counts: SlotCounts,
        block_size: int,
        lookahead: Lookahead,
        lag: int,
    ) -> None:
        super().__init__(pool, cache, block_size, lookahead, lag)
        self._blocks, self._cache, self._counts = pool, cache, counts

    def _foresee(self, seq: Sequence, member: Member) -> None:
        table: BlockTable = seq.memory
        since, size, ahead = member.since, self._size, self._ahead
        takes, believed = member.takes, member.believed
        most = (believed[member.num_steps - 1] + ahead - 1) // size + 1
        for end in range(len(table.blocks) * size - ahead, most * size - ahead, size):
            clock = since + member.first_believed(end)
            takes[clock] = takes.get(clock, 0) + 1
        self._foresee_names(member, range(table.registered + 1, len(table.keys) + 1))

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
        self._cover(table, known, known)
        return True

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
