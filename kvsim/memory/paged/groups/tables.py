"""Block tables of several groups of layers over one pool, and what their blocks hold in bytes."""

from collections.abc import Iterable, Sequence

from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.groups.grouping import BlockGroup
from kvsim.memory.paged.groups.hits import Hits, longest_hit, skipped_blocks
from kvsim.memory.paged.groups.retention import Retention
from kvsim.memory.paged.table import Table
from kvsim.plumbing.errors import InvariantError


class GroupTable(Table):
    """What the allocator keeps of one sequence.

    lists: each group's blocks, from position `skipped` of its table on. count: positions of the
    tables, the same in all groups that keep tokens. processed: slots whose step had returned at the
    clock `since`, when it began to decode. boundaries: after so many blocks others can continue
    from it, whatever the retention.
    """

    __slots__ = ("boundaries", "count", "lists", "processed", "since", "skipped")

    def __init__(self, keys: list[int], num_shareable: int, num_groups: int) -> None:
        super().__init__(keys, num_shareable)
        self.lists: list[list[int]] = [[] for _ in range(num_groups)]
        self.skipped = [0] * num_groups
        self.boundaries: tuple[int, ...] = ()
        self.count = 0
        self.processed = 0
        self.since = 0


class GroupTables:
    """Moves blocks between the pool and tables; what the prefix cache asks of them.

    keeping: the groups that keep tokens; the others hold a recurrent state. used_bytes: valid slots
    and states, shared ones once. pad_bytes: of held blocks, what no slot or state of their group
    can fill.
    """

    def __init__(
        self,
        pool: BlockPool,
        groups: Sequence[BlockGroup],
        block_size: int,
        block_bytes: int,
        retention_tokens: int | None,
    ) -> None:
        self.groups = groups
        self.keeping = [g for g, group in enumerate(groups) if not group.state_bytes]
        self.used_bytes = 0
        self.pad_bytes = 0
        self._pool = pool
        self._retention = {
            g: Retention(group.window_tokens, block_size, retention_tokens)
            for g, group in enumerate(groups)
            if group.window_tokens is not None
        }
        self._size = block_size
        self._states = [g for g, group in enumerate(groups) if group.state_bytes]
        self._state_bytes = sum(group.state_bytes for group in groups)
        self._pads = [
            block_bytes - (group.state_bytes or group.slot_bytes * block_size) for group in groups
        ]

    # --- for the prefix cache ------------------------------------------------------------------

    names_private = True  # what a window gives back while it runs must be found again

    def fresh(self, keys: list[int], num_shareable: int) -> GroupTable:
        """An empty table."""
        return GroupTable(keys, num_shareable, len(self.groups))

    def find(self, keys: Sequence[int]) -> Hits:
        """The longest prefix that every group can continue from."""
        return longest_hit(self._pool, self.groups, keys, self._size)

    def may_move(self, keys: Sequence[int]) -> bool:
        """Never asked: while the head of the queue has hits, runs end when a block moves."""
        return False

    def register(self, table: Table, full: int) -> None:
        """The first `full` blocks hold known content from now on."""
        assert isinstance(table, GroupTable)
        if full <= table.registered:
            return
        num = len(self.groups)
        for g in self.keeping:
            skipped, held = table.skipped[g], table.lists[g]
            start = max(table.registered, skipped)
            places: Sequence[int] = range(start, full)
            if g in self._retention:
                places = self._retention[g].kept(start, full, table.boundaries)
            blocks = [held[place - skipped] for place in places]
            self._pool.register(blocks, [table.keys[place] * num + g for place in places])
        table.registered = full

    # --- moving blocks -------------------------------------------------------------------------

    def open(self, table: GroupTable, hits: Hits) -> None:
        """An empty table takes over its hits, and a block for each state."""
        table.count = table.registered = hits.num_blocks
        table.tokens = table.processed = hits.num_blocks * self._size
        for g, blocks in enumerate(hits.blocks):
            revived = len(blocks) - self._pool.share(blocks)
            self._book(g, revived, revived * self._size)
            table.lists[g] = blocks.copy()
            table.skipped[g] = hits.first[g]
        for g in self._states:
            table.lists[g] = self._pool.take(1)
            self._book(g, 1, 0)
        self.used_bytes += self._state_bytes

    def _book(self, g: int, blocks: int, slots: int) -> None:
        """Group g holds so many more distinct blocks, and valid slots in them (negative: less)."""
        self.pad_bytes += blocks * self._pads[g]
        self.used_bytes += slots * self.groups[g].slot_bytes

    def grow(self, table: GroupTable, count: int) -> None:
        """Take blocks until every group that keeps tokens has `count` positions."""
        for g in self.keeping:
            table.lists[g] += self._pool.take(count - table.count)
            self._book(g, count - table.count, 0)
        table.count = count

    def give_back_below(self, table: GroupTable, computed: int) -> None:
        """Blocks that no token after the first `computed` ones attends to return to the pool."""
        for g in self.keeping:
            skip = skipped_blocks(self.groups[g].window_tokens, computed, self._size)
            more = min(skip, table.count) - table.skipped[g]
            if more > 0:
                self._give_back(g, table.lists[g][:more], more * self._size)
                del table.lists[g][:more]
                table.skipped[g] += more

    def _give_back(self, g: int, blocks: list[int], slots: int) -> None:
        """Group g returns blocks with `slots` valid slots."""
        shared = self._pool.give_back_by_keys(blocks)
        self._book(g, shared - len(blocks), shared * self._size - slots)

    def close(self, table: GroupTable) -> None:
        """All blocks of a table return to the pool."""
        for g in range(len(self.groups)):
            if g in self.keeping:
                slots = table.tokens - table.skipped[g] * self._size
                self._give_back(g, table.lists[g], slots)
            else:
                self._give_back(g, table.lists[g], 0)
        self.used_bytes -= self._state_bytes

    def check(self, live: Iterable[tuple[int, GroupTable]]) -> None:
        """Raise InvariantError unless the books agree with the tables of sequences with so many
        valid slots each.
        """
        tables = list(live)
        self._pool.check(blocks for _, table in tables for blocks in table.lists)
        used, pad = self._state_bytes * len(tables), 0
        seen: set[int] = set()
        for tokens, table in tables:
            for g, group in enumerate(self.groups):
                blocks, start = table.lists[g], table.skipped[g]
                if g in self.keeping and len(blocks) != table.count - start:
                    raise InvariantError(f"{len(blocks)} blocks held from {start} to {table.count}")
                shared = sum(block in seen for block in blocks)
                seen.update(blocks)
                pad += (len(blocks) - shared) * self._pads[g]
                used += (tokens - (start + shared) * self._size) * group.slot_bytes
        if (used, pad) != (self.used_bytes, self.pad_bytes):
            raise InvariantError(
                f"used and padding bytes are {used}, {pad}, "
                f"booked as {self.used_bytes}, {self.pad_bytes}"
            )
