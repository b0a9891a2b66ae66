"""Block tables of sequences that verify drafts in step with each other.

A member asks each step for its slots, one token more, and all drafts, twice where the next ones are
written too. Since its slots before each step are known when it joins, so are the steps in which it
takes blocks: each is found by bisection then, and nobody is touched in any other step.
"""

from bisect import bisect_left, bisect_right

from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.decoders import by_order
from kvsim.memory.paged.lookahead import Lookahead
from kvsim.memory.paged.prefix_cache import PrefixCache
from kvsim.memory.paged.slot_counts import SlotCounts
from kvsim.memory.paged.table import BlockTable
from kvsim.plumbing.errors import InvariantError
from kvsim.sequence import Sequence
from kvsim.speculation import Speculation


class Member:
    """since: the clock it joined at. slots: see `Verifying.join`."""

    __slots__ = ("since", "slots")

    def __init__(self, since: int, slots: list[int]) -> None:
        self.since, self.slots = since, slots


class VerifyingTables:
    """See `kvsim.memory.verifying.Verifying`. Changes the tables of members, pool and counts.

    clock: steps so far. drafts: slots of members that drafts were, or may be, written to.
    """

    def __init__(
        self,
        pool: BlockPool,
        cache: PrefixCache[list[int]],
        counts: SlotCounts,
        block_size: int,
        lookahead: Lookahead,
        speculation: Speculation,
    ) -> None:
        self.clock = 0
        self.drafts = 0
        self._pool, self._cache, self._counts, self._size = pool, cache, counts, block_size
        self._ahead = 1 + lookahead.tokens + lookahead.slots
        self._redrafted = speculation.redrafted_tokens
        self._hash_lookahead = speculation.hash_lookahead
        self._members: dict[Sequence, Member] = {}
        self._takes: dict[int, dict[Sequence, int]] = {}  # by clock: blocks, by who takes them
        self._num_takes: dict[int, int] = {}
        self._knows: dict[int, dict[Sequence, None]] = {}  # when the step is scheduled
        self._learns: dict[int, dict[Sequence, None]] = {}  # when it has returned

    # --- members -------------------------------------------------------------------------------

    def join(self, seq: Sequence, slots: list[int]) -> None:
        table: BlockTable = seq.memory
        member = Member(self.clock, slots)
        self._members[seq] = member
        self.drafts += table.drafts
        for clock in self._take_clocks(member, len(table.blocks)):
            takers = self._takes.setdefault(clock, {})
            takers[seq] = takers.get(seq, 0) + 1
            self._num_takes[clock] = self._num_takes.get(clock, 0) + 1
        if table.registered < len(table.keys):
            for clocks, clock in self._known_clocks(member, table):
                clocks.setdefault(clock, {})[seq] = None

    def _take_clocks(self, member: Member, held: int) -> list[int]:
        """The clock of each block that a member with so many blocks will yet take."""
        since, slots = member.since, member.slots
        most = (slots[-2] + self._ahead - 1) // self._size + 1
        ends = range(held * self._size - self._ahead, most * self._size - self._ahead, self._size)
        return [since + bisect_right(slots, end) for end in ends]

    def _known_clocks(
        self, member: Member, table: BlockTable
    ) -> list[tuple[dict[int, dict[Sequence, None]], int]]:
        """When blocks of a member that have keys become known, at the latest."""
        since, slots = member.since, member.slots
        ahead, found = self._hash_lookahead, []
        for blocks in range(table.registered + 1, len(table.keys) + 1):
            end = blocks * self._size
            scheduled = bisect_left(slots, end - 1 + max(ahead, self._redrafted))
            if scheduled < len(slots) - 1:
                found.append((self._knows, since + scheduled))
            returned = bisect_left(slots, max(end + self._redrafted, end + ahead - 1), lo=1)
            if returned < len(slots):
                found.append((self._learns, since + returned - 1))
        return found

    def leave(self, seq: Sequence, *, returned: bool) -> None:
        member, table = self._members.pop(seq), seq.memory
        for clock in self._take_clocks(member, len(table.blocks)):
            takers = self._takes[clock]
            takers[seq] -= 1
            if not takers[seq]:
                del takers[seq]
            self._num_takes[clock] -= 1
        if table.registered < len(table.keys):
            for clocks, clock in self._known_clocks(member, table):
                if clock in clocks:
                    clocks[clock].pop(seq, None)
        done = self.clock - member.since
        drafts = self._drafts_of(member, table)
        self.drafts -= drafts
        if done:
            table.tokens, table.drafts = member.slots[done], drafts
            known = member.slots[done - 1] + 1
            self._cache.cover(table, known, known)
            if returned:
                self._cache.cover(table, table.tokens, table.tokens + 1, in_step=False)

    def _drafts_of(self, member: Member, table: BlockTable) -> int:
        """Slots of a member that drafts have a claim to."""
        done, slots = self.clock - member.since, member.slots
        return self._ahead - (slots[done] - slots[done - 1]) if done else table.drafts

    # --- steps ---------------------------------------------------------------------------------

    def movers(self) -> list[Sequence]:
        movers: set[Sequence] = set(self._takes.get(self.clock, ()))
        movers.update(seq for seq in self._knows.get(self.clock, ()) if seq in self._members)
        return sorted(movers, key=by_order)

    def take(self, seq: Sequence) -> bool:
        clock, table = self.clock, seq.memory
        takers = self._takes.get(clock)
        count = 0 if takers is None else takers.get(seq, 0)
        if takers is not None and count:
            if count > self._pool.num_free:
                return False
            before = len(table.blocks)
            table.blocks += self._pool.take(count)
            self._counts.grow(seq.final_tokens, before, before + count, self._size)
            del takers[seq]
            self._num_takes[clock] -= count
        if seq in self._knows.get(clock, ()):
            known = self.slots(seq) + 1
            self._cache.cover(table, known, known)
        return True

    def advance(self, new_slots: int) -> None:
        clock = self.clock
        if self._takes.pop(clock, None):
            raise InvariantError("a sequence verifies drafts in slots it does not hold")
        self._num_takes.pop(clock, None)
        self._knows.pop(clock, None)
        self._learns.pop(clock - 1, None)
        self.clock += 1
        drafts = len(self._members) * self._ahead - new_slots
        self._counts.used += new_slots
        self._counts.drafts += drafts - self.drafts
        self.drafts = drafts

    def knowing(self) -> list[Sequence]:
        learns = self._learns.get(self.clock - 1, ())
        return sorted((seq for seq in learns if seq in self._members), key=by_order)

    def returned(self, seq: Sequence) -> None:
        tokens = self.slots(seq)
        self._cache.cover(seq.memory, tokens, tokens + 1, in_step=False)

    def steps_that_fit(self, limit: int) -> int:
        return self._steps_within(self._pool.num_free, limit)

    def _steps_within(self, blocks: int, limit: int) -> int:
        """For how many steps `blocks` blocks suffice."""
        taken = self._num_takes.get
        for step, clock in enumerate(range(self.clock, self.clock + limit)):
            blocks -= taken(clock, 0)
            if blocks < 0:
                return step
        return limit

    def steps_alike(self, head: Sequence, limit: int) -> int:
        hits = self._cache.hits(head)
        if self._cache.may_gain(head, len(hits)):
            return 0
        if self._cache.table_of(head).num_shareable:  # what it hits may be made by members
            for step, clock in enumerate(range(self.clock - 1, self.clock + limit)):
                if self._learns.get(clock) or self._knows.get(clock):
                    limit = max(0, step - 1)
                    break
        return self._steps_within(0, limit) if hits else limit  # which whoever takes may forget

    # --- books ---------------------------------------------------------------------------------

    def __contains__(self, seq: Sequence) -> bool:
        return seq in self._members

    def slots(self, seq: Sequence) -> int:
        """Valid slots of a member."""
        member = self._members[seq]
        return member.slots[self.clock - member.since]

    def drafts_of(self, seq: Sequence) -> int:
        """Slots of a member that drafts have a claim to."""
        return self._drafts_of(self._members[seq], seq.memory)
