"""Block tables of sequences that verify drafts in step with each other.

A member asks each step for its slots, one token more, and all drafts, twice where the next ones are
written too. Since its slots before each step are known when it joins, so are the steps in which it
takes blocks: each is found by bisection then, and nobody is touched in any other step.

Where a step is scheduled before the one before it has returned, all drafts of that one are believed
to be right: a member asks for as many slots more, and is known as it was a step before.
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
    """since: the clock it joined at. slots, known: see `Verifying.join`. believed: its slots before
    each step as the scheduler believes then.
    """

    __slots__ = ("believed", "known", "since", "slots")

    def __init__(self, since: int, slots: list[int], believed: list[int], known: int) -> None:
        self.since, self.slots, self.believed, self.known = since, slots, believed, known


class Believed:
    """Slots that members are believed to have before their next step, and may not: all drafts of a
    step that has not returned count. tokens: of such a step.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self._filled = 0  # slots that the last step of members filled
        self._num_first = 0  # members that have had none
        self._of_first = 0  # what is believed of these

    def joined(self, slots: int) -> None:
        """A member of which so many are believed."""
        self._num_first += 1
        self._of_first += slots

    def left(self, filled: int) -> None:
        """A member whose last step filled so many slots."""
        self._filled -= filled

    def left_first(self, slots: int) -> None:
        """One that has had none, of which so many were believed."""
        self._num_first -= 1
        self._of_first -= slots

    def stepped(self, num: int, new_slots: int) -> int:
        """All `num` members take a step, which fills so many slots; returns what was believed."""
        believed = (num - self._num_first) * self.tokens - self._filled if self.tokens else 0
        believed += self._of_first
        self._filled, self._num_first, self._of_first = new_slots, 0, 0
        return believed


class VerifyingTables:
    """See `kvsim.memory.verifying.Verifying`. Changes the tables of members, pool and counts.

    clock: steps so far. drafts: slots of members that drafts were, or may be, written to.
    lag: steps scheduled before one returns.
    """

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
        self.clock = 0
        self.drafts = 0
        self._lag = lag
        self._returned = 0  # steps
        self._believed = Believed(lag * (1 + lookahead.tokens))
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

    def join(self, seq: Sequence, slots: list[int], computed: int, known: int) -> None:
        table: BlockTable = seq.memory
        more, believed = self._believed.tokens, slots
        if self._lag:
            believed = [computed, *[before + more for before in slots[:-2]]]
        member = Member(self.clock, slots, believed, known)
        self._members[seq] = member
        self._believed.joined(computed - slots[0])
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
        since, believed, size = member.since, member.believed, self._size
        most = (believed[len(member.slots) - 2] + self._ahead - 1) // size + 1
        ends = range(held * size - self._ahead, most * size - self._ahead, size)
        return [since + bisect_right(believed, end) for end in ends]

    def _known_clocks(
        self, member: Member, table: BlockTable
    ) -> list[tuple[dict[int, dict[Sequence, None]], int]]:
        """When blocks of a member that have keys become known, at the latest."""
        since, slots, ahead = member.since, member.slots, self._hash_lookahead
        found = []
        for blocks in range(table.registered + 1, len(table.keys) + 1):
            end = blocks * self._size
            known = end + max(ahead, self._redrafted)
            scheduled = 0
            if member.known < known:
                scheduled = bisect_left(slots, known - 1) + self._lag
            if scheduled < len(slots) - 1:
                found.append((self._knows, since + scheduled))
            returned = bisect_left(slots, max(end + self._redrafted, end + ahead - 1), lo=1)
            if returned < len(slots):
                found.append((self._learns, since + returned - 1))
        return found

    def leave(self, seq: Sequence) -> None:
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
        done, slots = self.clock - member.since, member.slots
        drafts = self._drafts_of(member, table)
        self.drafts -= drafts
        if not done:
            self._believed.left_first(member.believed[0] - slots[0])
            return
        self._believed.left(slots[done] - slots[done - 1])
        table.tokens, table.drafts = slots[done], drafts
        known = self._known(member, done - 1)
        self._cache.cover(table, known, known)
        returned = min(self._returned - member.since, done)
        if returned > 0:
            self._cache.cover(table, slots[returned], slots[returned] + 1, in_step=False)

    def _known(self, member: Member, step: int) -> int:
        """Tokens that have returned when this step of a member is scheduled."""
        return member.slots[step - self._lag] + 1 if step else member.known

    def _drafts_of(self, member: Member, table: BlockTable) -> int:
        """Slots of a member that drafts have a claim to."""
        done = self.clock - member.since
        if not done:
            return table.drafts
        return member.believed[done - 1] + self._ahead - member.slots[done]

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
            member = self._members[seq]
            known = self._known(member, clock - member.since)
            self._cache.cover(table, known, known)
        return True

    def advance(self, new_slots: int) -> None:
        clock = self.clock
        if self._takes.pop(clock, None):
            raise InvariantError("a sequence verifies drafts in slots it does not hold")
        self._num_takes.pop(clock, None)
        self._knows.pop(clock, None)
        self.clock += 1
        num = len(self._members)
        drafts = num * self._ahead - new_slots + self._believed.stepped(num, new_slots)
        self._counts.used += new_slots
        self._counts.drafts += drafts - self.drafts
        self.drafts = drafts

    def step_returned(self) -> list[Sequence]:
        learns = self._learns.pop(self._returned, ())
        self._returned += 1
        return sorted((seq for seq in learns if seq in self._members), key=by_order)

    def returned(self, seq: Sequence) -> None:
        member = self._members[seq]
        tokens = member.slots[self._returned - member.since]
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
            for clock in range(self._returned, self.clock + limit):
                if self._learns.get(clock) or self._knows.get(clock):
                    limit = max(0, clock - self.clock)
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
