"""What blocks with numbers are found by: keys one by one.

Group g names a block by the key of the unit that it ends with, times the number of groups, plus g.
Blocks that are longer than what a key covers can be known to a unit inside too (see inside.py).
"""

from collections.abc import Sequence

from kvsim.memory.paged.block_pool import NULL_BLOCK
from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.groups.hits import Hits, Kind, Lookup, skipped_blocks
from kvsim.memory.paged.groups.inside import Inside
from kvsim.memory.paged.groups.names import GroupNames
from kvsim.memory.paged.groups.places import Places
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.pool import NumberedPool
from kvsim.memory.paged.table import Table
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.sizes import Sizes


class ListLookup(Lookup):
    """As its base, block by block."""

    def __init__(
        self, pool: NumberedPool, kinds: Sequence[Kind], sizes: Sizes, *, beyond: bool
    ) -> None:
        super().__init__(kinds, sizes, beyond=beyond)
        self._blocks = pool
        self._ends = dict[int, int]()  # of kinds of full attention: tokens up to the last hit block

    def find(self, table: GroupTable, num_keys: int, most: int) -> Hits:
        if self._num > 1 or not self._sizes.same or not self._kinds[0].full:
            return super().find(table, num_keys, most)
        (kind,) = self._kinds
        blocks = self._blocks.find(table.keys[: min(num_keys, most)]) if most > 0 else []
        if kind.drops:
            del blocks[-1:]
        return Hits(len(blocks) * kind.block_size, (0,), (blocks,))

    def _knows(self, kind: Kind, keys: Sequence[int], tokens: int) -> bool:
        """Whether all its groups know what ends after so many tokens."""
        key = keys[tokens // self._sizes.match - 1] * self._num
        return all(self._blocks.find((key + g,)) for g in kind.members)

    def _of_full(self, index: int, kind: Kind, table: GroupTable, limit: int, tokens: int) -> int:
        size, unit, keys = kind.block_size, self._sizes.match, table.keys
        ends = keys[size // unit - 1 : tokens // unit : size // unit]
        runs = (len(self._blocks.find([k * self._num + g for k in ends])) for g in kind.members)
        whole = end = min(runs) * size
        if self._sizes.aligned < size:
            most = min(whole + size - unit, tokens // unit * unit, limit * unit)
            inside = range(most, whole, -unit)
            end = next((at for at in inside if self._knows(kind, keys, at)), whole)
        self._ends[index] = end
        return end

    def _of_window(self, kind: Kind, table: GroupTable, tokens: int, *, drops: bool) -> int:
        assert kind.window_tokens is not None
        size, aligned, keys = kind.block_size, self._sizes.aligned, table.keys
        need = ceil_div(kind.window_tokens - 1, size) + drops
        run = end = 0
        for at in range(tokens // size * size, 0, -size):
            if not self._knows(kind, keys, at):
                run = 0
                continue
            if not run:
                if (at - drops * size) % aligned:
                    continue
                end = at
            run += 1
            if run >= need:
                break
        else:
            end = run * size
            end -= end % aligned
        end -= drops * min(size, end)
        return end - end % aligned

    def _of_state(self, kind: Kind, table: GroupTable, tokens: int) -> int:
        aligned, step = self._sizes.aligned, min(self._sizes.aligned, kind.block_size)
        for at in range(tokens // step * step, 0, -step):
            if at % aligned == 0 and self._knows(kind, table.keys, at):
                return at
        return 0

    def _hits(self, table: GroupTable, tokens: int, junction: int) -> Hits:
        first, blocks = [0] * self._num, [list[int]() for _ in range(self._num)]
        keys, unit = table.keys, self._sizes.match
        for index, kind in enumerate(self._kinds):
            size = kind.block_size
            start = skipped_blocks(kind.window_tokens, tokens, size)
            step = size // unit
            names = list(keys[(start + 1) * step - 1 : tokens // unit : step])
            if tokens % size:  # inside a block, which may be known as a whole
                end = ceil_div(tokens, size) * size
                if kind.recurrent:
                    end = tokens
                names.append(keys[min(end, self._ends.get(index, end)) // unit - 1])
            for g in kind.members:
                first[g] = start
                blocks[g] = self._blocks.find([key * self._num + g for key in names])
        return Hits(tokens, tuple(first), tuple(blocks), junction)


class ListNames(GroupNames):
    """As its base. drafts: tokens are drafted ahead."""

    def __init__(
        self,
        pool: NumberedPool,
        kinds: Sequence[Kind],
        sizes: Sizes,
        step: int,
        retention_tokens: int | None,
        *,
        places: Places,
        drafts: bool = False,
    ) -> None:
        lookup = ListLookup(pool, kinds, sizes, beyond=places.counts_drops)
        super().__init__(
            pool, lookup, kinds, sizes, step, retention_tokens, places=places, late=False
        )
        self._blocks = pool
        self._inside: Inside | None = None
        if not sizes.same:
            self._inside = Inside(
                pool, kinds, sizes, places, self._retention, self.in_step, drafts=drafts
            )

    def fresh(self, runs: KeyRuns, num_shareable: int) -> GroupTable:
        return GroupTable(runs, num_shareable, self._num, len(self._kinds))

    def may_move(self, table: Table, num_hits: int) -> bool:
        assert isinstance(table, GroupTable)
        return self._blocks.has_duplicate_free(table.keys[:num_hits])

    def name(self, table: GroupTable, tokens: int, hashed_tokens: int, *, in_step: bool) -> None:
        super().name(table, tokens, hashed_tokens, in_step=in_step)
        if self._inside is not None:
            self._inside.name_tails(table, tokens, hashed_tokens)

    def _name_in(self, table: GroupTable, g: int, places: Sequence[int], *, in_step: bool) -> None:
        skipped, held = table.skipped[g], table.lists[g]
        if g in self._states:
            places = [place for place in places if held[place - skipped] != NULL_BLOCK]
        blocks = [held[place - skipped] for place in places]
        keys = self._keys(table, g, places)
        if g in self._states and in_step:
            self.in_step.update(keys)
        if self._inside is not None:
            for block in blocks:
                self._blocks.forget(block)  # it was known to a point inside
        self._blocks.register(blocks, keys)

    def _keys(self, table: GroupTable, g: int, places: Sequence[int]) -> list[int]:
        """Of what the blocks at these positions in group g hold."""
        units, num, names = self._sizes.blocks[g] // self._sizes.match, self._num, table.keys
        return [names[(place + 1) * units - 1] * num + g for place in places]

    def num_free_of(self, hits: Hits, g: int) -> int:
        return self._blocks.num_free_of(hits.blocks[g])

    def name_inside(self, table: GroupTable, *, checkpoint: bool) -> None:
        if self._inside is not None:
            self._inside.name(table, checkpoint=checkpoint)

    def is_being_made(self, hits: Hits) -> bool:
        if not self.in_step:
            return False
        last = (blocks[-1] for g, blocks in enumerate(hits.blocks) if g in self._states and blocks)
        return any(self._blocks.key_of(block) in self.in_step for block in last)
