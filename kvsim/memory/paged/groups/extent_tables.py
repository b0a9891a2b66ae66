"""Block tables of several groups of layers in extents: how many blocks each holds, and which have
keys.

Neighbouring groups with one window, in blocks of one size, hold blocks at the same positions, and
take and give them together; so do all groups of recurrent states.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.extent import Extent
from kvsim.memory.paged.extent_pool import ExtentPool, Part
from kvsim.memory.paged.groups.extent_names import ExtentNames
from kvsim.memory.paged.groups.extent_table import ExtentTable
from kvsim.memory.paged.groups.hits import Hits
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.groups.tables import GroupTables
from kvsim.memory.paged.kept import OUTPUT
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.sizes import Sizes

NO_PARTS: list[Part] = []


def groups_can_be_counted(memory: MemorySpec) -> bool:
    """Whether nobody can tell blocks without names apart: nobody watches them, and what goes back
    goes to the front of the free queue, or has a name.
    """
    rules, groups = memory.rules, memory.layout.groups
    states = any(group.state_bytes for group in groups)
    counted = memory.unwatched and memory.speculation is None and rules.blank_first
    return counted and (rules.retires_behind_gaps or not states)


class GroupsOfOneShape(NamedTuple):
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


class ExtentTables(GroupTables):
    """Where no token is drafted, no hit ends inside a block, and states that no sequence needs go
    back whatever lies between them.
    """

    def __init__(
        self,
        pool: ExtentPool,
        groups: Sequence[BlockGroup],
        sizes: Sizes,
        block_bytes: int,
        names: ExtentNames,
        *,
        states_kept: bool,
    ) -> None:
        super().__init__(groups, sizes, block_bytes, names, states_kept=states_kept)
        self._pool, self._extent_names = pool, names
        is_state = [group.state_bytes > 0 for group in groups]
        kinds = [*zip(self.windows, sizes.blocks, is_state, strict=True)]
        parted = groupby(self.placed, key=kinds.__getitem__)
        shapes = [self._of_one_shape(list(members)) for _, members in parted]
        self._shapes = shapes
        self._placed_states = [each for each in shapes if each.states]
        self._attending = [each for each in shapes if not each.states]
        self._sliding = [each for each in shapes if each.window_tokens is not None]
        self._all_pads = sum(each.pad_bytes for each in shapes)

    def _of_one_shape(self, members: list[int]) -> GroupsOfOneShape:
        groups, first = self.groups, members[0]
        size = self._sizes.blocks[first]
        return GroupsOfOneShape(
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
        assert isinstance(table, ExtentTable)
        table.tokens = table.processed = hits.tokens
        self._names.opened(table, hits.tokens)
        if hits.tokens:
            self._take_over(table, hits)
        if self._sliding:
            table.kept_until = [
                self._extent_names.kept_until(table, each.members[0]) for each in self._sliding
            ]
        if self._single:
            self._pool.take(len(self._single))
            for g in self._single:
                self._book(g, 1, 0)

    def _take_over(self, table: ExtentTable, hits: Hits) -> None:
        table.count = ceil_div(hits.tokens, self._sizes.unit)
        for each in self._shapes:
            if each.states:
                table.states = hits.tokens // each.block_size
                table.held_states = [table.states - 1]
            for g in each.members:
                found, first = hits.found[g], hits.first[g]
                revived = found.num - self._pool.share(found, first, table.parts[g])
                self._book(g, revived, revived * each.block_size)
                table.skipped[g] = first

    def grow(self, table: GroupTable, count: int, states: int, *, checkpoint: bool = False) -> None:
        assert isinstance(table, ExtentTable)
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

    def start_units(self, tables: Sequence[GroupTable]) -> None:
        for table in tables:
            table.count += 1
        self.pad_bytes += len(tables) * self._all_pads
        self._pool.take(len(tables) * len(self.placed))

    def give_back_below(self, table: GroupTable, computed: int) -> None:
        assert isinstance(table, ExtentTable)
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

    def _name_leaving(self, table: ExtentTable, each: GroupsOfOneShape, end: int) -> None:
        """Blocks before position `end`, which go back, get the keys that they could do without so
        far.
        """
        if end > self._extent_names.known_blocks(table.registered, each.members[0]):
            self._names.register_returning(table, each.members, end)

    def _slide(self, table: ExtentTable, each: GroupsOfOneShape, start: int, end: int) -> None:
        """These groups return their blocks from position `start` to `end`."""
        held, slots = end - start, (end - start) * each.block_size
        if each.states:
            held, slots = sum(start <= at < end for at in table.held_states), 0
        self._return(each, held, slots)
        blank = held * each.num
        for g in each.members:
            table.skipped[g] = end
            parts = table.parts[g]
            if parts and parts[0][0] < end:
                blank -= self._give_named(g, self._before(parts, end), 0)
        if blank:
            self._pool.give_back(NO_PARTS, 0, 0, (), blank)

    def _before(self, parts: list[Part], end: int) -> list[Part]:
        """Take the blocks before position `end` out of these parts."""
        num = 0
        for place, _, count in parts:
            if place >= end:
                break
            num += 1
            if place + count > end:
                parts[num - 1 : num] = self._pool.cut(parts[num - 1], end - place)
                break
        gone = parts[:num]
        del parts[:num]
        return gone

    def _return(self, each: GroupsOfOneShape, held: int, slots: int) -> None:
        """Each of these groups returns so many blocks, and so many valid slots in them."""
        self.pad_bytes -= held * each.pad_bytes
        self.used_bytes -= held * each.state_bytes + slots * each.slot_bytes
        self.state_bytes -= held * each.state_bytes

    def _give_named(self, g: int, parts: list[Part], prompt_end: int) -> int:
        """Group g returns blocks with keys; returns how many they are."""
        num = 0
        for _, _, count in parts:
            num += count
        shared = self._pool.give_back(parts, self._why[g], prompt_end, (), 0)
        if shared:
            self._book(g, shared, shared * self._sizes.blocks[g])
        return num

    def close(self, table: GroupTable, known: int) -> None:
        assert isinstance(table, ExtentTable)
        for each in self._shapes:
            first = each.members[0]
            start, end = table.skipped[first], self._end(table, each)
            held, slots = end - start, table.tokens - start * each.block_size
            if each.states:
                held, slots = len(self._states_from(table, start)), 0
            kept: Sequence[int] = ()
            if known:
                kept = self._kept(table, each, known)
            self._return(each, held, slots)
            prompt_end = 0
            if self._why[first] == OUTPUT:  # full attention, which keeps all in a row
                prompt_end = self._num_prompt(first, table, 0)
            for g in each.members:
                parts, nameless = table.parts[g], kept
                if known and parts and each.window_tokens is None:
                    nameless = self._without_keys(table, g, kept)
                num = held - len(nameless)
                for _, _, count in parts:
                    num -= count
                shared = self._pool.give_back(parts, self._why[g], prompt_end, nameless, num)
                if shared:
                    self._book(g, shared, shared * each.block_size)
        for g in self._single:
            self._pool.give_back(NO_PARTS, 0, 0, (), 1)
            self._book(g, -1, 0)

    def _kept(self, table: ExtentTable, each: GroupsOfOneShape, known: int) -> Sequence[int]:
        """Places of blocks of each of these groups whose content goes without the key it would
        have, as its sequence has finished.
        """
        first = each.members[0]
        places = self._names.places(table, first, self._extent_names.known_blocks(known, first))
        if each.states:
            return [at for at in places if at in table.held_states]
        return places

    def _without_keys(self, table: ExtentTable, g: int, kept: Sequence[int]) -> Sequence[int]:
        """The same, and those with keys that no other sequence has: these lose their keys."""
        parts, most = table.parts[g], self._extent_names.lookable_blocks(table, g)
        place, _, num = parts[-1]
        if place + num <= most:
            return kept
        end = place + num + len(kept)
        while parts and parts[-1][0] >= most:
            self._pool.forget(parts.pop())
        return range(parts[-1][0] + parts[-1][2] if parts else 0, end)

    # --- what is held --------------------------------------------------------------------------

    def _end(self, table: ExtentTable, each: GroupsOfOneShape) -> int:
        """Positions of the tables of these groups."""
        return table.states if each.states else ceil_div(table.count, each.span)

    def _states_from(self, table: ExtentTable, start: int) -> list[int]:
        """Places from `start` on that hold a state."""
        return [at for at in table.held_states if at >= start]

    def held_blocks(self, table: GroupTable) -> list[int]:
        assert isinstance(table, ExtentTable)
        held = [1] * len(self.groups)
        for each in self._shapes:
            for g in each.members:
                start = table.skipped[g]
                held[g] = self._end(table, each) - start
                if each.states:
                    held[g] = len(self._states_from(table, start))
        return held

    def leading_shared(self, table: GroupTable) -> int:
        assert isinstance(table, ExtentTable)
        if not self._pool.num_shared:
            return 0
        shared, sizes = self._pool.num_leading_shared, self._sizes.blocks
        full = [g for g in self.placed if self.windows[g] is None]
        return min((shared(table.parts[g]) * sizes[g] for g in full), default=0)

    def length(self, table: GroupTable) -> int:
        assert isinstance(table, ExtentTable)
        return next((self._end(table, each) for each in self._shapes if 0 in each.members), 1)

    def check(self, live: Iterable[tuple[int, GroupTable]]) -> None:
        used = states = pad = num_blocks = 0
        seen: set[Extent] = set()
        named: list[list[Part]] = []
        for tokens, table in live:
            assert isinstance(table, ExtentTable)
            held = self.held_blocks(table)
            num_blocks += sum(held)
            for g, group in enumerate(self.groups):
                named.append(table.parts[g])
                shared = 0
                for _, head, num in table.parts[g]:
                    extents = head.chain(num)
                    shared += sum(extent.num for extent in extents if extent in seen)
                    seen.update(extents)
                pad += (held[g] - shared) * self._pads[g]
                states += (held[g] - shared) * group.state_bytes
                start = table.skipped[g] + shared
                used += (tokens - start * group.block_size) * group.slot_bytes
        self._pool.check(named, num_blocks)
        self._check_bytes(used, states, pad)
