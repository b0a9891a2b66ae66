"""Block tables of several groups of layers as lists of blocks: which block is whose is known.

Positions without a state are null blocks.
"""

from collections.abc import Iterable, Sequence

from kvsim.memory.paged.block_pool import NULL_BLOCK, BlockPool
from kvsim.memory.paged.groups.copies import Copies, End
from kvsim.memory.paged.groups.hits import Hits, skipped_blocks
from kvsim.memory.paged.groups.names import GroupNames
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.groups.tables import GroupTables
from kvsim.memory.paged.kept import OUTPUT
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.speculation import Speculation
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.sizes import Sizes


class ListTables(GroupTables):
    """Groups of any kind, one by one. retires_behind_gaps: see BlockRules."""

    def __init__(
        self,
        pool: BlockPool,
        groups: Sequence[BlockGroup],
        sizes: Sizes,
        block_bytes: int,
        names: GroupNames,
        *,
        states_kept: bool,
        retires_behind_gaps: bool = True,
        speculation: Speculation | None = None,
    ) -> None:
        super().__init__(
            groups, sizes, block_bytes, names, states_kept=states_kept, speculation=speculation
        )
        self._behind_gaps = retires_behind_gaps
        self._pool = pool
        self.copies = Copies(pool, self._why)

    def open(self, table: GroupTable, hits: Hits) -> None:
        table.count = ceil_div(hits.tokens, self._sizes.unit)
        table.tokens = table.processed = hits.tokens
        self._names.opened(table, hits.tokens)
        for g, blocks in enumerate(hits.blocks):
            kept, size = blocks, self._sizes.blocks[g]
            if g in self._states and g in self.placed:
                table.states = ceil_div(hits.tokens, size)
            if blocks and hits.tokens % size:
                kept = blocks[:-1]
                table.copied[g] = blocks[-1]
                self._pool.share(blocks[-1:])
            revived = len(kept) + self.copies.num_alone(kept) - self._pool.share(kept)
            self._book(g, revived, revived * size)
            table.lists[g] = kept.copy()
            table.skipped[g] = hits.first[g]
        for g in self._single:
            table.lists[g] = self._pool.take(1 + self._scratch)
            self._book(g, 1 + self._scratch, 0)
            self._book_scratch(g, 1)

    def _book_scratch(self, g: int, tables: int) -> None:
        """So many more tables of group g have scratch states: held and not used."""
        num_bytes = tables * self._scratch * self.groups[g].state_bytes
        self.scratch_bytes += num_bytes
        self.used_bytes -= num_bytes
        self.state_bytes -= num_bytes

    def grow(self, table: GroupTable, count: int, states: int, *, checkpoint: bool = False) -> None:
        for g in self.placed:
            if g in table.copied:
                self._copy(table, g)
            if g in self._states:
                self._grow_states(table, g, states, checkpoint=checkpoint)
            elif count > table.count:
                more = self._sizes.positions(g, count) - self._sizes.positions(g, table.count)
                table.lists[g] += self._pool.take(more)
                self._book(g, more, 0)
        if states > table.states:
            table.last_state = table.states - 1 - (self._scratch if table.begun else 0)
        table.count, table.states = max(count, table.count), max(states, table.states)
        table.begun = True

    def start_units(self, tables: Sequence[GroupTable]) -> None:
        placed, num = self.placed, len(self.placed)
        blocks = self._pool.take(len(tables) * num)
        if num == 1:
            (g,) = placed
            for table, block in zip(tables, blocks, strict=True):
                table.lists[g].append(block)
                table.count += 1
        else:
            for index, table in enumerate(tables):
                for at, g in enumerate(placed):
                    table.lists[g].append(blocks[index * num + at])
                table.count += 1
        for g in placed:
            self.pad_bytes += len(tables) * self._pads[g]

    def _copy(self, table: GroupTable, g: int) -> None:
        """A table goes on in a copy of what it hit, or leaves a copy of what others can hit."""
        block, held = table.copied.pop(g), table.lists[g]
        size = self._sizes.blocks[g]
        end = End(block, table.tokens // size, table.session)
        if block in held:
            self._names.in_step.add(self.copies.of_maker(g, end))
        else:
            held.append(self.copies.of_hit(g, end))
            self._book(g, 1, table.tokens % size)

    def _grow_states(self, table: GroupTable, g: int, states: int, *, checkpoint: bool) -> None:
        """The running state lies before the scratch ones; those that a long step leaves behind are
        moved to the new end, and what it passes over is null, but for a checkpoint.
        """
        held, skipped, scratch = table.lists[g], table.skipped[g], self._scratch
        before = skipped + len(held)
        if states <= before:
            return
        running = states - scratch - 1 - checkpoint
        held += [NULL_BLOCK] * (running - before)
        if table.begun:
            for place in range(before - scratch - skipped, min(before, running) - skipped):
                held.append(held[place])
                held[place] = NULL_BLOCK
        else:
            self._book_scratch(g, 1)
        new = states - skipped - len(held)
        held += self._pool.take(new)
        self._book(g, new, 0)

    def give_back_below(self, table: GroupTable, computed: int) -> None:
        for g in self.placed:
            window = self.windows[g]
            if window is None:
                continue
            if g not in self._states:
                window += self._extra
            size = self._sizes.blocks[g]
            more = skipped_blocks(window, computed, size) - table.skipped[g]
            more = min(more, len(table.lists[g]))
            if more > 0 and g in self._states and not self._behind_gaps:
                self._retire(table, g, more)
            elif more > 0:
                self._give_back(g, table, table.lists[g][:more], more * size)
                del table.lists[g][:more]
                table.skipped[g] += more

    def _retire(self, table: GroupTable, g: int, more: int) -> None:
        """Of the first `more` entries of a table of states, the last ones up to a gap go back, and
        the state of the allocation before.
        """
        held = table.lists[g]
        start = more
        while start and held[start - 1] != NULL_BLOCK:
            start -= 1
        for first, end in (start, more), self._before(table, g, more):
            self._give_back(g, table, held[first:end], 0, first)
            held[first:end] = [NULL_BLOCK] * (end - first)
        gap = next((at for at, block in enumerate(held[:more]) if block != NULL_BLOCK), more)
        del held[:gap]
        table.skipped[g] += gap

    def _before(self, table: GroupTable, g: int, more: int) -> tuple[int, int]:
        """The state of the allocation before, as a range of the table's first `more` entries."""
        at = table.last_state - table.skipped[g]
        if 0 <= at < more and table.lists[g][at] != NULL_BLOCK:
            return at, at + 1
        return 0, 0

    def _give_back(
        self, g: int, table: GroupTable, blocks: list[int], slots: int, first: int = 0
    ) -> None:
        """Group g returns blocks of a table from its `first` entry on, with `slots` valid slots."""
        start = table.skipped[g] + first
        places: Sequence[int] = range(start, start + len(blocks))
        if g in self._states:
            places = [at for at, block in zip(places, blocks, strict=True) if block != NULL_BLOCK]
            blocks = [block for block in blocks if block != NULL_BLOCK]
        num_prompt = self._num_prompt(g, table, start) if self._why[g] == OUTPUT else 0
        shared = self._pool.give_back_by_keys(
            blocks, places, self._why[g], num_prompt, session=table.session
        )
        if shared:
            shared -= self.copies.num_alone(blocks)
        self._book(g, shared - len(blocks), shared * self._sizes.blocks[g] - slots)

    def close(self, table: GroupTable, known: int) -> None:
        if not (self.slides or self._states):
            self._close_whole(table, known)
            return
        for g in range(len(self.groups)):
            slots = table.tokens - table.skipped[g] * self._sizes.blocks[g]
            self._give_back(g, table, table.lists[g], slots)
        for g in self._states:
            self._book_scratch(g, -1)

    def _close_whole(self, table: GroupTable, known: int) -> None:
        """The same of one table that holds every token: its first `known` blocks keep their
        content, with a key or without one.
        """
        (blocks,), size = table.lists, self._sizes.whole
        known = max(known, table.registered)
        num_prompt = table.prompt_tokens // size
        shared = self._pool.give_back(blocks, known, num_prompt, session=table.session)
        self._book(0, shared - len(blocks), shared * size - table.tokens)

    def decided(self) -> None:
        super().decided()
        self.copies.decided()

    def held_blocks(self, table: GroupTable) -> list[int]:
        return [len(blocks) - blocks.count(NULL_BLOCK) for blocks in table.lists]

    def leading_shared(self, table: GroupTable) -> int:
        shared = self._pool.num_leading_shared
        full = [g for g in self.placed if self.windows[g] is None]
        return min((shared(table.lists[g]) * self._sizes.blocks[g] for g in full), default=0)

    def length(self, table: GroupTable) -> int:
        return table.skipped[0] + len(table.lists[0])

    def blocks_of(self, table: GroupTable) -> list[int]:
        if len(table.lists) == 1:
            return table.lists[0]
        return [block for blocks in table.lists for block in blocks]

    def check(self, live: Iterable[tuple[int, GroupTable]]) -> None:
        tables = list(live)
        real = [
            [[block for block in blocks if block != NULL_BLOCK] for blocks in table.lists]
            for _, table in tables
        ]
        self._pool.check([*(blocks for lists in real for blocks in lists), self.copies.ends])
        pad = held_states = 0
        seen: set[int] = set()
        valid: dict[int, int] = {}  # bytes of valid slots, block by block
        for (tokens, table), lists in zip(tables, real, strict=True):
            for g, group in enumerate(self.groups):
                blocks, start = lists[g], table.skipped[g]
                end = table.states if g in self._states else self._sizes.positions(g, table.count)
                if g in self.placed and len(table.lists[g]) != end - start:
                    raise InvariantError(f"{len(blocks)} blocks held from {start} to {end}")
                shared = sum(block in seen for block in blocks)
                seen.update(blocks)
                pad += (len(blocks) - shared) * self._pads[g]
                states = len(blocks) - shared - (self._scratch if group.state_bytes else 0)
                held_states += states * group.state_bytes
                if not group.state_bytes:
                    for place, block in enumerate(blocks, start):
                        slots = min(group.block_size, tokens - place * group.block_size)
                        valid[block] = max(slots * group.slot_bytes, valid.get(block, 0))
        self._check_bytes(sum(valid.values()), held_states, pad)
