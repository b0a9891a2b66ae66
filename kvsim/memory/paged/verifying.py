"""Sequences that verify drafts in lockstep, and the steps in which they take or free blocks.

In each step a member needs its slots, one more token and all drafts, twice if the next drafts are
written too. Its slots before each step are known when it joins. So are the steps in which it takes
blocks, which bisection finds. No other step touches the member.

If a step is scheduled before the previous one has returned, all drafts of that step count as
accepted. A member then needs that many more slots, and its known content is that of the step
before.
"""

from collections.abc import Callable

from kvsim.memory.paged.admission import Lookahead
from kvsim.memory.paged.blocks import Table
from kvsim.memory.paged.decoding import Decoding
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.prefix_cache import PrefixCache
from kvsim.memory.paged.tables import BlockTables
from kvsim.memory.paged.verifying_member import Member, OptimisticSlots
from kvsim.memory.verifying import Ahead
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence, by_order
from kvsim.vllm.sizes import Sizes


class VerifyingMembers:
    """The sequences that verify drafts in lockstep: see `kvsim.memory.verifying.Verifying`.

    All blocks hold the same number of tokens (`Sizes.same`). When scheduled, a member frees blocks
    outside windows and states before it allocates any, as a sequence outside of lockstep does.

    clock: steps so far. drafts: slots of members allocated for drafts. lag: steps scheduled before
    one returns. waits: (whether the queue's head lacks blocks, whether it has hits); None: it may
    start at any time. lazy: content that only its own sequence can hit is cached only when one of
    its blocks is taken or freed.
    """

    def __init__(
        self,
        pool: BlockPool,
        tables: BlockTables,
        decoding: Decoding,
        cache: PrefixCache,
        sizes: Sizes,
        lookahead: Lookahead,
        lag: int,
        *,
        token_bytes: int,
        waits: Callable[[Sequence], tuple[bool, bool] | None],
        lazy: bool,
    ) -> None:
        self.clock = 0
        self.drafts = 0
        self._pool, self._decoding = pool, decoding
        self._tables, self._shapes = tables, tables.shapes
        self._cache, self._lookahead = cache, lookahead
        self._size, self._lag, self._token_bytes = sizes.unit, lag, token_bytes
        self._waits, self._lazy = waits, lazy
        self._step_tokens = 1 + lookahead.tokens
        self._ahead = self._step_tokens + lookahead.slots
        self._returned = 0  # steps
        self._optimistic = OptimisticSlots(lag * self._step_tokens)
        self._members: dict[Sequence, Member] = {}
        self._turns: dict[int, dict[Sequence, None]] = {}  # members with a turn, by clock
        self._num_allocated: dict[int, int] = {}  # most blocks, by clock
        self._num_freed: dict[int, int] = {}
        self._num_registering: dict[int, int] = {}
        self._late: dict[int, dict[Sequence, None]] = {}

    # --- what moves ----------------------------------------------------------------------------

    def _foresee(self, seq: Sequence, member: Member) -> None:
        """Plan the steps in which a new member allocates, frees or registers blocks."""
        table: Table = seq.memory
        since, size, shapes = member.since, self._size, self._shapes
        allocations, frees, last = member.allocations, member.frees, member.num_steps - 1
        allocations[since] = 0  # work that waited for a turn
        most = member.counted[last]
        for units in range(table.count, ceil_div(most + self._ahead, size)):
            clock = since + member.first_counted(units * size - self._ahead)
            allocations[clock] = allocations.get(clock, 0) + shapes.blocks_of_unit
        for tokens in shapes.state_starts(table, most + self._step_tokens):
            clock = since + member.first_counted(tokens - self._step_tokens)
            allocations[clock] = allocations.get(clock, 0) + shapes.num_placed_states
        for tokens, blocks in shapes.frees(table, member.returned(last)):
            clock = since + member.first_returned(tokens)
            allocations.setdefault(clock, 0)
            frees[clock] = frees.get(clock, 0) + blocks
        if self._cache.enabled:
            keys = table.num_shareable if self._lazy else len(table.runs)
            self._foresee_names(member, range(table.covered + 1, keys // self._cache.units + 1))

    def _foresee_names(self, member: Member, blocks: range) -> None:
        """Plan the steps at which the first n blocks of a member are registered, for each n in
        `blocks`.
        """
        since, steps = member.since, member.num_steps
        ahead, again = self._cache.lookahead, self._cache.redrafted
        for number in blocks:
            end = number * self._size
            scheduled = member.first_known(end + max(ahead, again))
            if scheduled < steps:
                member.allocations.setdefault(since + scheduled, 0)
                member.registrations.append(since + scheduled)
            returned = member.first_filling(end + max(again, ahead - 1))
            if returned < steps:
                member.late_registrations.append(since + returned)

    def _move(self, seq: Sequence, member: Member, step: int) -> bool:
        """Schedule a member's own step number `step`: free, then allocate blocks; False: no room,
        nothing taken.
        """
        table: Table = seq.memory
        slots = member.slots
        if step:
            self._catch_up(table, member, step)
            table.tokens = slots[step]
        self._tables.give_back_below(table, member.returned(step))
        num_tokens = member.counted[step] + self._step_tokens
        units = ceil_div(self._lookahead.room(num_tokens), self._size)
        states = self._shapes.states_for(num_tokens)
        if self._shapes.missing(table, units, states, checkpoint=False) > self._pool.num_free:
            return False
        self._decoding.grow(seq, table, units, states)
        table.tokens = slots[step + 1]
        known = member.known(step)
        self._cover(table, known, known)
        return True

    # --- members -------------------------------------------------------------------------------

    def join(self, seq: Sequence, ahead: Ahead) -> None:
        member = Member(self.clock, ahead, self._lag, self._step_tokens)
        self._members[seq] = member
        self._optimistic.joined(member.counted_beyond)
        self.drafts += seq.memory.drafts
        self._foresee(seq, member)
        num_allocated = self._num_allocated
        for clock, blocks in member.allocations.items():
            self._turns.setdefault(clock, {})[seq] = None
            num_allocated[clock] = num_allocated.get(clock, 0) + blocks
        num_freed, num_registering = self._num_freed, self._num_registering
        for clock, blocks in member.frees.items():
            num_freed[clock] = num_freed.get(clock, 0) + blocks
        for clock in member.registrations:
            num_registering[clock] = num_registering.get(clock, 0) + 1
        for clock in member.late_registrations:
            self._late.setdefault(clock, {})[seq] = None

    def leave(self, seq: Sequence) -> None:
        member, table = self._members.pop(seq), seq.memory
        self._forget(seq, member)
        done, slots = self.clock - member.since, member.slots
        drafts = self._drafts_of(member, table)
        self.drafts -= drafts
        if not done:
            self._optimistic.left_first(member.counted_beyond)
            return
        self._optimistic.left(slots[done] - slots[done - 1])
        table.tokens, table.drafts = slots[done], drafts
        self._catch_up(table, member, done)

    def _forget(self, seq: Sequence, member: Member) -> None:
        """Drop the planned steps of a member."""
        for clock, blocks in member.allocations.items():
            turns = self._turns.get(clock)
            if turns is not None and seq in turns:
                del turns[seq]
                self._num_allocated[clock] -= blocks
        for clock, blocks in member.frees.items():
            if clock >= self.clock:
                self._num_freed[clock] -= blocks
        for clock in member.registrations:
            if clock >= self.clock:
                self._num_registering[clock] -= 1
        for clock in member.late_registrations:
            if clock in self._late:
                self._late[clock].pop(seq, None)

    def _catch_up(self, table: Table, member: Member, done: int) -> None:
        """Cache the content that the first `done` steps of a member made known when they were
        scheduled or returned.
        """
        known, returned = member.known(done - 1), min(self._returned - member.since, done)
        self._cover(table, known, known)
        if returned > 0:
            tokens = member.slots[returned]
            self._cover(table, tokens, tokens + 1, in_step=False)

    def _cover(self, table: Table, tokens: int, known: int, *, in_step: bool = True) -> None:
        """Cache full blocks, as `PrefixCache.cover` does."""
        if known >= table.cover_at:
            self._cache.cover(table, tokens, known, in_step=in_step)

    def _drafts_of(self, member: Member, table: Table) -> int:
        """Slots of a member that are allocated for drafts."""
        done = self.clock - member.since
        if not done:
            return table.drafts
        return member.counted[done - 1] + self._ahead - member.slots[done]

    # --- steps ---------------------------------------------------------------------------------

    def due(self) -> list[Sequence]:
        return sorted(self._turns.get(self.clock, ()), key=by_order)

    def take(self, seq: Sequence) -> bool:
        clock, member = self.clock, self._members[seq]
        if not self._move(seq, member, clock - member.since):
            return False
        del self._turns[clock][seq]
        self._num_allocated[clock] -= member.allocations[clock]
        return True

    def advance(self, new_slots: int) -> None:
        clock = self.clock
        if self._turns.pop(clock, None):
            raise InvariantError("a sequence verifies drafts in slots it does not hold")
        self._num_allocated.pop(clock, None)
        self._num_freed.pop(clock, None)
        self._num_registering.pop(clock, None)
        self.clock += 1
        num = len(self._members)
        drafts = num * self._ahead - new_slots + self._optimistic.stepped(num, new_slots)
        self._tables.used_bytes += new_slots * self._token_bytes
        self._tables.draft_slots += drafts - self.drafts
        self.drafts = drafts

    def step_returned(self) -> list[Sequence]:
        late = self._late.pop(self._returned, ())
        self._returned += 1
        return sorted((seq for seq in late if seq in self._members), key=by_order)

    def returned(self, seq: Sequence) -> None:
        member = self._members[seq]
        tokens = member.slots[self._returned - member.since]
        self._cover(seq.memory, tokens, tokens + 1, in_step=False)

    def steps_that_fit(self, limit: int) -> int:
        return self._steps_within(self._pool.num_free, limit)

    def _steps_within(self, blocks: int, limit: int) -> int:
        """Number of steps for which `blocks` free blocks suffice, ignoring blocks that are freed
        meanwhile.
        """
        taken = self._num_allocated.get
        for step, clock in enumerate(range(self.clock, self.clock + limit)):
            blocks -= taken(clock, 0)
            if blocks < 0:
                return step
        return limit

    def _steps_unregistered(self, limit: int) -> int:
        """Number of steps in which members cache no block that others could hit, at most
        `limit`.
        """
        for clock in range(self._returned, self.clock + limit):
            if self._late.get(clock) or self._num_registering.get(clock):
                return max(0, clock - self.clock)
        return limit

    def steps_head_stays_blocked(self, head: Sequence, limit: int) -> int:
        found = self._waits(head)
        if found is None:
            return 0
        lacking, hits = found
        if self._cache.table_of(head).num_shareable:  # members may compute its hits
            limit = self._steps_unregistered(limit)
        if hits:  # a block that is taken may evict them
            limit = self._steps_within(0, limit)
        return self._steps_keeping(limit) if lacking else limit

    def _steps_keeping(self, limit: int) -> int:
        """Number of steps in which members free no block, at most `limit`."""
        for step, clock in enumerate(range(self.clock, self.clock + limit)):
            if self._num_freed.get(clock):
                return step
        return limit

    # --- books ---------------------------------------------------------------------------------

    def __contains__(self, seq: Sequence) -> bool:
        return seq in self._members

    def slots(self, seq: Sequence) -> int:
        """Valid slots of a member."""
        member = self._members[seq]
        return member.slots[self.clock - member.since]

    def drafts_of(self, seq: Sequence) -> int:
        """Slots of a member that are allocated for drafts."""
        return self._drafts_of(self._members[seq], seq.memory)
