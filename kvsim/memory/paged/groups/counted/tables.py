"""Block tables of several groups of layers, counted: how many blocks, and which have names.

Neighbouring groups with one window, in blocks of one size, hold blocks at the same positions, and
take and give them together; so do all groups of recurrent states.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.groups.counted.names import CountedNames
from kvsim.memory.paged.groups.counted.pool import CountedPool
from kvsim.memory.paged.groups.counted.table import CountedTable
from kvsim.memory.paged.groups.grouping import BlockGroup
from kvsim.memory.paged.groups.hits import Hits
from kvsim.memory.paged.groups.sizes import Sizes
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.groups.tables import GroupTables
from kvsim.memory.paged.kept import OUTPUT, PROMPT
from kvsim.plumbing.units import ceil_div


def groups_can_be_counted(memory: MemorySpec) -> bool:
    """Whether nobody can tell blocks without names apart: nobody watches them, and what goes back
    goes to the front of the free queue, or has a name.
    """
    rules, groups = memory.rules, memory.layout.groups
    states = any(group.state_bytes for group in groups)
    counted = memory.unwatched and memory.speculation is None and rules.blank_first
    return counted and (rules.retires_behind_gaps or not states)


class Alike(NamedTuple):
    """Groups that take and give together.

    window_tokens: how far they look back, None: all. span: units in a block. states: they hold
    recurrent states. pad_bytes, state_bytes: of a block of each; slot_bytes: of a slot of each.
    """

    members: list[int]
    window_tokens: int | None
    block_size: int
    span: int
    states: bool
    pad_bytes: int
    state_bytes: int
    slot_bytes: int

    @property
    def num(self) -> int:
        """How many groups."""
        return len(self.members)


class CountedTables(GroupTables):
    """Where nothing is drafted, no hit ends inside a block, and states that nobody needs go back
    whatever lies between them.
    """

    def __init__(
        self,
        pool: CountedPool,
        groups: Sequence[BlockGroup],
        sizes: Sizes,
        block_bytes: int,
        names: CountedNames,
        *,
        states_kept: bool,
    ) -> None:
        super().__init__(groups, sizes, block_bytes, names, states_kept=states_kept)
        self._pool, self._counted = pool, names
        kinds = [*zip(self.windows, sizes.blocks, self._is_state(), strict=True)]
        parted = groupby(self.placed, key=kinds.__getitem__)
        alike = [self._alike(list(members)) for _, members in parted]
        self._alikes = alike
        self._placed_states = [each for each in alike if each.states]
        self._attending = [each for each in alike if not each.states]
        self._sliding = [each for each in alike if each.window_tokens is not None]

    def _is_state(self) -> list[bool]:
        return [group.state_bytes > 0 for group in self.groups]

    def _alike(self, members: list[int]) -> Alike:
        groups, first = self.groups, members[0]
        size = self._sizes.blocks[first]
        return Alike(
            members,
            self.windows[first],
            size,
            size // self._sizes.unit,
            groups[first].state_bytes > 0,
            sum(self._pads[g] for g in members),
            sum(groups[g].state_bytes for g in members),
            sum(groups[g].slot_bytes for g in members),
        )

    # --- moving blocks -------------------------------------------------------------------------

    def open(self, table: GroupTable, hits: Hits) -> None:
        assert isinstance(table, CountedTable)
        table.tokens = table.processed = hits.tokens
        self._names.opened(table, hits.tokens)
        if hits.tokens:
            self._take_over(table, hits)
        table.kept_until = [
            self._counted.kept_until(table, each.members[0]) for each in self._sliding
        ]
        if self._single:
            self._pool.take(len(self._single))
            for g in self._single:
                self._book(g, 1, 0)

    def _take_over(self, table: CountedTable, hits: Hits) -> None:
        table.count = ceil_div(hits.tokens, self._sizes.unit)
        for each in self._alikes:
            if each.states:
                table.states = hits.tokens // each.block_size
                table.held_states = [table.states - 1]
            for g in each.members:
                blocks, first = hits.blocks[g], hits.first[g]
                revived = len(blocks) - self._pool.share(blocks)
                self._book(g, revived, revived * each.block_size)
                table.skipped[g] = first
                table.named_in(g).update(
                    zip(range(first, first + len(blocks)), blocks, strict=True)
                )

    def grow(self, table: GroupTable, count: int, states: int, *, checkpoint: bool = False) -> None:
        assert isinstance(table, CountedTable)
        new = 0
        if count > table.count:
            for each in self._attending:
                more = -(-count // each.span) + -table.count // each.span
                if more:
                    new += more * each.num
                    self.pad_bytes += more * each.pad_bytes
            table.count = count
        if states > table.states:
            table.states = states
            if self._placed_states:
                start = table.skipped[self._placed_states[0].members[0]]
                table.held_states = [at for at in table.held_states if at >= start]
                table.held_states.append(states - 1)
                for each in self._placed_states:
                    new += each.num
                    self.pad_bytes += each.pad_bytes
                    self.used_bytes += each.state_bytes
                    self.state_bytes += each.state_bytes
        if new:
            self._pool.take(new)

    def give_back_below(self, table: GroupTable, computed: int) -> None:
        assert isinstance(table, CountedTable)
        for index, each in enumerate(self._sliding):
            window, first = each.window_tokens, each.members[0]
            assert window is not None
            skip, start = (computed - window + 1) // each.block_size, table.skipped[first]
            if skip <= start:
                continue
            positions = table.states if each.states else -(-table.count // each.span)
            end = min(skip, positions)
            if end > start:
                if start < table.kept_until[index] and self._names.names_late:
                    self._name_leaving(table, each, end)
                self._slide(table, each, start, end)

    def _name_leaving(self, table: CountedTable, each: Alike, end: int) -> None:
        """Blocks before position `end`, which go back, get the names that they could do without so
        far.
        """
        if end > self._counted.known_blocks(table.registered, each.members[0]):
            self._names.register_returning(table, each.members, end)

    def _slide(self, table: CountedTable, each: Alike, start: int, end: int) -> None:
        """These groups return their blocks from position `start` to `end`."""
        held, slots = end - start, (end - start) * each.block_size
        if each.states:
            held, slots = sum(start <= at < end for at in table.held_states), 0
        for g in each.members:
            table.skipped[g] = end
        self._return(each, held, slots)
        blank = held * each.num
        if table.blocks:
            for g in each.members:
                blank -= self._give_named(table, g, start, end)
        self._pool.give_back(blank)

    def _return(self, each: Alike, held: int, slots: int) -> None:
        """Each of these groups returns so many blocks, and so many valid slots in them."""
        self.pad_bytes -= held * each.pad_bytes
        self.used_bytes -= held * each.state_bytes + slots * each.slot_bytes
        self.state_bytes -= held * each.state_bytes

    def _give_named(self, table: CountedTable, g: int, start: int, end: int) -> int:
        """Group g returns its blocks with names from position `start` to `end`; returns how many
        they are.
        """
        named = table.blocks[g]
        places = [at for at in range(end - 1, start - 1, -1) if at in named]
        gone = [named.pop(at) for at in places]
        if gone:
            num_prompt = 0
            if self._why[g] == OUTPUT:
                end = start + self._num_prompt(g, table, start)
                num_prompt = sum(at < end for at in places)
            shared = self._pool.give_back_named(gone, self._why[g], num_prompt)
            if shared:
                self._book(g, shared, shared * self._sizes.blocks[g])
        return len(gone)

    def close(self, table: GroupTable, known: int) -> None:
        assert isinstance(table, CountedTable)
        blank = 0
        for each in self._alikes:
            start, end = table.skipped[each.members[0]], self._end(table, each)
            held, slots = end - start, table.tokens - start * each.block_size
            if each.states:
                held, slots = len(self._states_from(table, start)), 0
            kept = outputs = 0
            if known:
                kept, outputs = self._num_kept(table, each, known)
            self._return(each, held, slots)
            if kept == outputs and not table.blocks:  # in whatever order
                self._pool.give_back_nameless(kept * each.num, self._why[each.members[0]])
                blank += (held - kept) * each.num
                continue
            for g in each.members:
                # The end of a table goes before its beginning.
                if kept:
                    self._pool.give_back_nameless(outputs, self._why[g])
                    self._pool.give_back_nameless(kept - outputs, PROMPT)
                blank += held - kept
                if table.blocks:
                    blank -= self._give_named(table, g, start, end)
        for g in self._single:
            blank += 1
            self._book(g, -1, 0)
        self._pool.give_back(blank)

    def _num_kept(self, table: CountedTable, each: Alike, known: int) -> tuple[int, int]:
        """How many blocks of each of these groups hold content that goes without the name it would
        have, as its sequence has finished; and how many of these not as a prompt.
        """
        first = each.members[0]
        places = self._names.places(table, first, self._counted.known_blocks(known, first))
        if each.states:
            kept = sum(at in table.held_states for at in places)
            return kept, kept
        if not places or self._why[first] != OUTPUT:
            return len(places), len(places)
        end = self._num_prompt(first, table, 0)  # full attention keeps all in a row
        return len(places), min(len(places), max(0, places[-1] + 1 - end))

    # --- what is held --------------------------------------------------------------------------

    def _end(self, table: CountedTable, each: Alike) -> int:
        """Positions of the tables of these groups."""
        return table.states if each.states else ceil_div(table.count, each.span)

    def _states_from(self, table: CountedTable, start: int) -> list[int]:
        """Places from `start` on that hold a state."""
        return [at for at in table.held_states if at >= start]

    def held_blocks(self, table: GroupTable) -> list[int]:
        assert isinstance(table, CountedTable)
        held = [1] * len(self.groups)
        for each in self._alikes:
            for g in each.members:
                start = table.skipped[g]
                held[g] = self._end(table, each) - start
                if each.states:
                    held[g] = len(self._states_from(table, start))
        return held

    def leading_shared(self, table: GroupTable) -> int:
        assert isinstance(table, CountedTable)
        if not table.blocks:
            return 0
        shared, sizes = self._pool.num_leading_shared, self._sizes.blocks
        full = [g for g in self.placed if self.windows[g] is None]
        return min((shared(table.blocks[g].values()) * sizes[g] for g in full), default=0)

    def length(self, table: GroupTable) -> int:
        assert isinstance(table, CountedTable)
        return next((self._end(table, each) for each in self._alikes if 0 in each.members), 1)

    def check(self, live: Iterable[tuple[int, GroupTable]]) -> None:
        used = states = pad = num_blocks = 0
        seen: set[int] = set()
        named: list[list[int]] = []
        for tokens, table in live:
            assert isinstance(table, CountedTable)
            held = self.held_blocks(table)
            num_blocks += sum(held)
            for g, group in enumerate(self.groups):
                blocks = list(table.blocks[g].values()) if table.blocks else []
                named.append(blocks)
                shared = sum(block in seen for block in blocks)
                seen.update(blocks)
                pad += (held[g] - shared) * self._pads[g]
                states += (held[g] - shared) * group.state_bytes
                start = table.skipped[g] + shared
                used += (tokens - start * group.block_size) * group.slot_bytes
        self._pool.check(named, num_blocks)
        self._check_bytes(used, states, pad)
