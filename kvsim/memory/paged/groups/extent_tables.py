"""Block tables of several groups of layers in extents: how many blocks each holds, and which have
keys.

Neighbouring groups with one window, in blocks of one size, hold blocks at the same positions, and
take and give them together; so do all groups of recurrent states.
"""

from collections.abc import Iterable, Sequence

from kvsim.memory.paged.extent import NO_BLOCKS, Extent
from kvsim.memory.paged.extent_pool import ExtentPool
from kvsim.memory.paged.groups.extent_names import ExtentNames
from kvsim.memory.paged.groups.extent_table import ExtentTable
from kvsim.memory.paged.groups.hits import Hits
from kvsim.memory.paged.groups.shapes import GroupsOfOneShape, shapes_of
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.groups.tables import GroupTables
from kvsim.memory.paged.kept import OUTPUT
from kvsim.memory.paged.parts import NO_PARTS, Part, extents_of, num_leading_shared
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.speculation import Speculation
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.sizes import Sizes


class ExtentTables(GroupTables):
    """Where no hit ends inside a block, and states that no sequence needs go back whatever lies
    between them; with drafts, where there are no states.
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
        speculation: Speculation | None = None,
    ) -> None:
        super().__init__(
            groups, sizes, block_bytes, names, states_kept=states_kept, speculation=speculation
        )
        self._pool, self._extent_names, self._tracked = pool, names, pool.tracked
        shapes = shapes_of(groups, self.placed, self.windows, sizes.unit, self._pads)
        self._shapes = shapes
        self._placed_states = [each for each in shapes if each.states]
        self._attending = [each for each in shapes if not each.states]
        self._sliding = [each for each in shapes if each.window_tokens is not None]
        # In the order in which a version without blank blocks in front, and numbers, show it.
        self._one_by_one = pool.tracked or not pool.blank_first
        self._all_pads = sum(each.pad_bytes for each in shapes)

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
            for g in self._single:
                table.lists[g] = self._pool.take(1)
                self._book(g, 1, 0)

    def _take_over(self, table: ExtentTable, hits: Hits) -> None:
        table.count = ceil_div(hits.tokens, self._sizes.unit)
        for each in self._shapes:
            if each.states:
                table.states = hits.tokens // each.block_size
                table.held_states = [table.states - 1]
            for g in each.members:
                found, first = hits.found[g], hits.first[g]
                parts = table.parts[g]
                revived = found.num - self._pool.share(found, first, parts)
                if self._tracked:
                    table.lists[g] = [block for part in parts for block in part[1].blocks]
                self._book(g, revived, revived * each.block_size)
                table.skipped[g] = first

    def grow(self, table: GroupTable, count: int, states: int, *, checkpoint: bool = False) -> None:
        assert isinstance(table, ExtentTable)
        new, before = 0, table.count
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
            blocks = self._pool.take(new)
            if blocks:
                self._deal(table, blocks, before, count)

    def _deal(self, table: GroupTable, blocks: list[int], before: int, count: int) -> None:
        """These blocks are those of units `before` to `count` of a table, group by group."""
        at, lists = 0, table.lists
        if len(lists) == 1:
            lists[0] += blocks
            return
        for each in self._attending:
            more = -(-count // each.span) + -before // each.span
            for g in each.members if more else ():
                lists[g] += blocks[at : at + more]
                at += more

    @property
    def counts_units(self) -> bool:
        return not (self._tracked or self._scratch)

    def take_units(self, num: int) -> None:
        self.pad_bytes += num * self._all_pads
        self._pool.take(num * len(self.placed))

    def start_units(self, tables: Sequence[GroupTable]) -> None:
        for table in tables:
            table.count += 1
        self.pad_bytes += len(tables) * self._all_pads
        blocks = self._pool.take(len(tables) * len(self.placed))
        if blocks:
            num = len(self.placed)
            for at, g in enumerate(self.placed):
                for table, block in zip(tables, blocks[at::num], strict=True):
                    table.lists[g].append(block)

    def give_back_below(self, table: GroupTable, computed: int) -> None:
        assert isinstance(table, ExtentTable)
        for index, each in enumerate(self._sliding):
            window, first = each.window_tokens, each.members[0]
            assert window is not None
            if not each.states:
                window += self._extra
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
        num_blank = 0
        for g in each.members:
            table.skipped[g] = end
            parts = table.parts[g]
            gone = self._pool.cut_before(parts, end) if parts and parts[0][0] < end else NO_PARTS
            if self._one_by_one:
                blocks = table.lists[g][: end - start]
                del table.lists[g][: end - start]
                self._give(g, gone, 0, (), held, blocks, start)
            else:
                num_blank += held
                if gone:
                    num_blank -= self._give(g, gone, 0, (), 0, NO_BLOCKS, start)
        if num_blank:
            self._pool.give_back(NO_PARTS, 0, 0, (), num_blank)
        self._pool.given_back()

    def _return(self, each: GroupsOfOneShape, held: int, slots: int) -> None:
        """Each of these groups returns so many blocks, and so many valid slots in them."""
        self.pad_bytes -= held * each.pad_bytes
        self.used_bytes -= held * each.state_bytes + slots * each.slot_bytes
        self.state_bytes -= held * each.state_bytes

    def _give(
        self,
        g: int,
        parts: list[Part],
        prompt_end: int,
        nameless: Sequence[int],
        held: int,
        blocks: list[int],
        start: int,
    ) -> int:
        """Group g returns `held` blocks, or those with keys alone: see `ExtentPool.give_back`.
        Returns how many have keys.
        """
        num = 0
        for _, _, count in parts:
            num += count
        num_blank = max(0, held - num - len(nameless))
        shared = self._pool.give_back(
            parts, self._why[g], prompt_end, nameless, num_blank, blocks, start
        )
        if shared:
            self._book(g, shared, shared * self._sizes.blocks[g])
        return num

    def close(self, table: GroupTable, known: int) -> None:
        assert isinstance(table, ExtentTable)
        closing: dict[int, tuple[int, int, Sequence[int], int]] = {}
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
                closing[g] = start, held, kept, prompt_end
        for g in range(len(self.groups)):
            if g not in closing:
                self._pool.give_back(NO_PARTS, 0, 0, (), 1, table.lists[g])
                self._book(g, -1, 0)
                continue
            start, held, kept, prompt_end = closing[g]
            parts = table.parts[g]
            if known and parts and self.windows[g] is None:
                kept = self._without_keys(table, g, kept)
            self._give(g, parts, prompt_end, kept, held, table.lists[g], start)
        self._pool.given_back()

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
        shared, sizes = num_leading_shared, self._sizes.blocks
        full = [g for g in self.placed if self.windows[g] is None]
        return min((shared(table.parts[g]) * sizes[g] for g in full), default=0)

    def length(self, table: GroupTable) -> int:
        assert isinstance(table, ExtentTable)
        return next((self._end(table, each) for each in self._shapes if 0 in each.members), 1)

    def blocks_of(self, table: GroupTable) -> list[int]:
        if len(table.lists) == 1:
            return table.lists[0]
        return [block for blocks in table.lists for block in blocks]

    def check(self, live: Iterable[tuple[int, GroupTable]]) -> None:
        used = states = pad = num_blocks = 0
        seen: set[Extent] = set()
        named: list[list[Part]] = []
        lists: list[list[int]] = []
        for tokens, table in live:
            assert isinstance(table, ExtentTable)
            held = self.held_blocks(table)
            num_blocks += sum(held)
            lists += table.lists
            if self._pool.tracked and held != [len(blocks) for blocks in table.lists]:
                raise InvariantError(f"{held} blocks held in lists of other lengths")
            for g, group in enumerate(self.groups):
                named.append(table.parts[g])
                extents = extents_of(table.parts[g])
                shared = sum(extent.num for extent in extents if extent in seen)
                seen.update(extents)
                pad += (held[g] - shared) * self._pads[g]
                states += (held[g] - shared) * group.state_bytes
                start = table.skipped[g] + shared
                used += (tokens - start * group.block_size) * group.slot_bytes
        self._pool.check(named, num_blocks, lists)
        self._check_bytes(used, states, pad)
