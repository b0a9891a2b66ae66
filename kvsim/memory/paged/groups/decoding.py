"""Decoding sequences with several block tables: whose turn it is to give and to take, and how far
all can go before somebody must be asked.

When several sequences take and give in one step, each gives before it takes, in running order.
"""

from kvsim.memory.ledger import Course
from kvsim.memory.paged.decoders import Decoders, by_order
from kvsim.memory.paged.groups.course import GroupMoves
from kvsim.memory.paged.groups.forecast import Forecast
from kvsim.memory.paged.groups.hits import Hits
from kvsim.memory.paged.groups.rooms import Rooms
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.groups.tables import GroupTables
from kvsim.memory.paged.groups.windows import Windows
from kvsim.memory.paged.pool import Pool
from kvsim.memory.paged.prefix_cache import PrefixCache
from kvsim.memory.paged.shape import BlockShape
from kvsim.sequence import Sequence
from kvsim.vllm.sizes import Sizes


class Decoding:
    """Moves blocks between `pool` and `tables` while all decode. lag: as in MemorySpec's
    hash_lag. token_bytes: what one slot costs, all layers together.
    """

    def __init__(
        self,
        shape: BlockShape,
        pool: Pool,
        tables: GroupTables,
        rooms: Rooms,
        cache: PrefixCache[Hits],
        sizes: Sizes,
        *,
        lag: int,
        token_bytes: int,
    ) -> None:
        self._shape, self._pool, self._tables, self._rooms = shape, pool, tables, rooms
        self._cache, self._unit, self._lag, self._token_bytes = cache, sizes.unit, lag, token_bytes
        self.decoders = Decoders(sizes.unit)
        self._windows = Windows(tables.windows, sizes.blocks, lag)
        self.forecast = Forecast(pool, tables, self.decoders, self._windows, sizes)
        self.copying: dict[Sequence, None] = {}  # whose next step begins with a copy

    def join(self, seq: Sequence, num_tokens: int) -> None:
        """`seq`, with so many valid slots, decodes from the next step on."""
        table: GroupTable = seq.memory
        if table.joined:  # it was passed over, so all its tokens have returned
            table.processed = num_tokens
        table.since = self.decoders.clock
        self.decoders.join(seq, table, num_tokens)
        self._cache.join(seq, table)
        self._windows.join(seq, table.base, self.decoders.clock, table.skipped)
        if table.copied:
            self.copying[seq] = None

    def leave(self, seq: Sequence) -> None:
        """`seq` decodes no more."""
        table: GroupTable = seq.memory
        table.processed = self.computed(table, self.decoders.clock)
        self.copying.pop(seq, None)
        self._cache.leave(seq, table)
        self.decoders.leave(seq, table)
        self._windows.leave(seq, table.base)

    def computed(self, table: GroupTable, clock: int) -> int:
        """Slots of a decoder that have returned when the step at `clock` is scheduled."""
        if self._lag and clock == table.since:
            return table.processed
        return table.base + clock - self._lag

    def grow(
        self,
        seq: Sequence,
        table: GroupTable,
        count: int,
        states: int,
        *,
        checkpoint: bool = False,
    ) -> None:
        """A table, of a decoder or not, takes blocks: see `GroupTables.grow`."""
        if count > table.count:
            self._rooms.grown(seq.final_tokens, table.count, count)
        self._tables.grow(table, count, states, checkpoint=checkpoint)
        self.copying.pop(seq, None)

    def must_extend(self) -> list[Sequence]:
        """Who takes a block or gives one: both happen in running order."""
        decoders = self.decoders
        movers = decoders.at(decoders.clock) | self._windows.givers(decoders.clock) | self.copying
        return sorted(movers.keys() - decoders.extended, key=by_order)

    def steps_that_fit(self, limit: int) -> int:
        """See `Allocator.steps_that_fit`."""
        if self.copying:
            copies = sum(len(seq.memory.copied) for seq in self.copying)
            need = self._tables.most_new_blocks * self.decoders.num + copies
            return int(need <= self._pool.num_free)
        return self.forecast.steps_that_fit(limit)

    def advance(self, steps: int) -> Course:
        """All take one slot in each of `steps` steps."""
        decoders = self.decoders
        slope_bytes = decoders.num * self._token_bytes
        moves = GroupMoves(self._shape, self._pool, self._tables, self._rooms, slope_bytes)
        start = decoders.clock
        for t, clock in enumerate(range(start, start + steps), start=1):
            if self._move(clock):
                moves.at(t)
            self._cache.advanced(clock)
        decoders.advance(steps)
        self._tables.used_bytes += slope_bytes * steps
        return moves.course()

    def _move(self, clock: int) -> bool:
        """The step at `clock`: whose turn it is gives, then takes. Returns whether anybody did."""
        decoders = self.decoders
        members = decoders.at(clock) | self._windows.givers(clock) | self.copying
        if clock == decoders.clock:
            members = {seq: None for seq in members if seq not in decoders.extended}
            decoders.extended.clear()
        give_back_below, unit = self._tables.give_back_below, self._unit
        for seq in sorted(members, key=by_order) if len(members) > 1 else members:
            table: GroupTable = seq.memory
            give_back_below(table, self.computed(table, clock))
            slots = table.base + clock
            if slots % unit == 0:  # the step starts a new unit, and so a block of some groups
                self.grow(seq, table, table.count + 1, self._tables.states_for(slots + 1))
            elif table.copied:
                self.grow(seq, table, table.count, table.states)
        self._windows.passed(clock)
        return bool(members)
