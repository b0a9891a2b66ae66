"""One block table a sequence, over one pool: what the prefix cache asks of it."""

from typing import ClassVar

from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.table import BlockTable, Table


class OneTable:
    """See `prefix_cache.Tables`. drops: a hit loses its last block, which a drafter must see
    computed again.
    """

    names_private: ClassVar[bool] = False
    names_late: ClassVar[bool] = False

    def __init__(self, pool: BlockPool, *, drops: bool = False) -> None:
        self._pool = pool
        self._drops = drops

    @property
    def version(self) -> int:
        return self._pool.version

    def fresh(self, runs: KeyRuns, num_shareable: int) -> BlockTable:
        """An empty table."""
        return BlockTable(runs, num_shareable)

    def may_move(self, table: Table, num_hits: int) -> bool:
        """Whether another block of the same content may stand in for one that was hit."""
        assert isinstance(table, BlockTable)
        return self._pool.has_spare(table.keys[:num_hits])

    def find(self, table: Table, known: int, most: int) -> list[int]:
        """Blocks that hold the first keys, at most `most`, up to the first that none holds."""
        assert isinstance(table, BlockTable)
        blocks = self._pool.find(table.keys[: min(known, most)])
        return blocks[:-1] if self._drops else blocks

    def register(self, table: Table, full: int, *, in_step: bool) -> None:
        """The first `full` blocks of `table` hold the content of their keys from now on."""
        assert isinstance(table, BlockTable)
        new = slice(table.registered, full)
        self._pool.register(table.blocks[new], table.keys[new])
        table.registered = full
