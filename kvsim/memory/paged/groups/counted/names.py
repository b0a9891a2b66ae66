"""What counted blocks are found by: they get numbers with their names."""

from collections.abc import Sequence

from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.groups.counted.pool import CountedPool
from kvsim.memory.paged.groups.counted.table import CountedTable
from kvsim.memory.paged.groups.hits import Kind
from kvsim.memory.paged.groups.names import GroupNames
from kvsim.memory.paged.groups.places import Places
from kvsim.memory.paged.groups.sizes import Sizes
from kvsim.memory.paged.groups.table import GroupTable


class CountedNames(GroupNames):
    """As its base, where nothing is drafted and no hit ends inside a block."""

    def __init__(
        self,
        pool: CountedPool,
        kinds: Sequence[Kind],
        sizes: Sizes,
        retention_tokens: int | None,
        *,
        places: Places,
    ) -> None:
        super().__init__(
            pool, kinds, sizes, sizes.whole, retention_tokens, places=places, late=True
        )
        self._counted = pool

    def fresh(self, runs: KeyRuns, num_shareable: int) -> CountedTable:
        return CountedTable(runs, num_shareable, self._num, len(self._kinds))

    def kept_until(self, table: CountedTable, g: int) -> int:
        """The place in group g from which on nothing that leaves the window is ever named."""
        retention = self._retention[self._kind_of[g]]
        assert retention is not None
        return retention.kept_until(table.boundaries, table.junction_tokens)

    def known_blocks(self, known: int, g: int) -> int:
        """How many blocks of group g are known where so many steps of tokens are."""
        return known * self._step // self._sizes.blocks[g]

    def _name_in(self, table: GroupTable, g: int, places: Sequence[int], *, in_step: bool) -> None:
        assert isinstance(table, CountedTable)
        if g in self._states:
            places = [place for place in places if place in table.held_states]
        blocks, keys = self._counted.numbered(len(places)), self._keys(table, g, places)
        if g in self._states and in_step:
            self.in_step.update(keys)
        table.named_in(g).update(zip(places, blocks, strict=True))
        self._counted.register(blocks, keys)
