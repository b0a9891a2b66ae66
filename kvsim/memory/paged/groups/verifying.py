"""Block tables of several groups of layers whose sequences verify drafts in step with each other.

All blocks hold as many tokens (`Sizes.same`). A member gives back what windows and states have left
behind before it takes anything, in its turn, as it would alone.
"""

from collections.abc import Callable

from kvsim.memory.paged.groups.cache import GroupsCache
from kvsim.memory.paged.groups.decoding import Decoding
from kvsim.memory.paged.groups.rooms import Rooms
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.groups.tables import GroupTables
from kvsim.memory.paged.lookahead import Lookahead
from kvsim.memory.paged.pool import Pool
from kvsim.memory.paged.verifying.member import Member
from kvsim.memory.paged.verifying.members import VerifyingMembers
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence
from kvsim.vllm.sizes import Sizes


class VerifyingGroups(VerifyingMembers):
    """Changes the tables of members, pool and books.

    waits: whether the head of the queue lacks blocks, and whether it has hits; None: it may start
    whatever moves. lazy: content that only its own sequence could look for gets its keys when a
    block of it is taken or given back.
    """

    def __init__(
        self,
        pool: Pool,
        tables: GroupTables,
        decoding: Decoding,
        cache: GroupsCache,
        rooms: Rooms,
        sizes: Sizes,
        lookahead: Lookahead,
        lag: int,
        *,
        token_bytes: int,
        waits: Callable[[Sequence], tuple[bool, bool] | None],
        lazy: bool,
    ) -> None:
        super().__init__(pool, cache, sizes.unit, lookahead, lag)
        self._tables, self._decoding, self._cache, self._rooms = tables, decoding, cache, rooms
        self._lookahead, self._token_bytes = lookahead, token_bytes
        self._waits, self._lazy = waits, lazy

    # --- what moves ----------------------------------------------------------------------------

    def _foresee(self, seq: Sequence, member: Member) -> None:
        table: GroupTable = seq.memory
        since, size, tables = member.since, self._size, self._tables
        takes, gives, last = member.takes, member.gives, member.num_steps - 1
        takes[since] = 0  # whatever has waited for its turn
        most = member.believed[last]
        for units in range(table.count, ceil_div(most + self._ahead, size)):
            clock = since + member.first_believed(units * size - self._ahead)
            takes[clock] = takes.get(clock, 0) + tables.blocks_of_unit
        for tokens in tables.state_starts(table, most + self._step_tokens):
            clock = since + member.first_believed(tokens - self._step_tokens)
            takes[clock] = takes.get(clock, 0) + tables.num_placed_states
        for tokens, blocks in tables.gives(table, member.returned(last)):
            clock = since + member.first_returned(tokens)
            takes.setdefault(clock, 0)
            gives[clock] = gives.get(clock, 0) + blocks
        if self._cache.enabled:
            keys = table.num_shareable if self._lazy else len(table.runs)
            self._foresee_names(member, range(table.covered + 1, keys // self._cache.units + 1))

    def _move(self, seq: Sequence, member: Member, step: int) -> bool:
        table: GroupTable = seq.memory
        tables, slots = self._tables, member.slots
        if step:
            self._catch_up(table, member, step)
            table.tokens = slots[step]
        tables.give_back_below(table, member.returned(step))
        num_tokens = member.believed[step] + self._step_tokens
        units = ceil_div(self._lookahead.room(num_tokens), self._size)
        states = tables.states_for(num_tokens)
        if tables.missing(table, units, states, checkpoint=False) > self._pool.num_free:
            return False
        self._decoding.grow(seq, table, units, states)
        table.tokens = slots[step + 1]
        known = member.known(step)
        self._cover(table, known, known)
        return True

    def _book(self, new_slots: int, more_drafts: int) -> None:
        self._tables.used_bytes += new_slots * self._token_bytes
        self._rooms.drafts += more_drafts

    # --- who waits -----------------------------------------------------------------------------

    def steps_head_stays_blocked(self, head: Sequence, limit: int) -> int:
        found = self._waits(head)
        if found is None:
            return 0
        lacking, hits = found
        if self._cache.table_of(head).num_shareable:  # what it hits may be made by members
            limit = self._steps_unknowing(limit)
        if hits:  # which whoever takes may forget
            limit = self._steps_within(0, limit)
        return self._steps_keeping(limit) if lacking else limit

    def _steps_keeping(self, limit: int) -> int:
        """For how many steps nothing is given back."""
        for step, clock in enumerate(range(self.clock, self.clock + limit)):
            if self._num_given.get(clock):
                return step
        return limit
