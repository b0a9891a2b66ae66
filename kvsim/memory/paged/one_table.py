"""One block table a sequence, over one pool: what the prefix cache asks of it."""

from collections.abc import Sequence
from typing import ClassVar

from kvsim.memory.paged.block_pool import BlockPool
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
        self.fresh = BlockTable
        self.may_move = pool.has_spare

    def find(self, keys: Sequence[int], most: int) -> list[int]:
        """Blocks that hold the first keys, at most `most`, up to the first that none holds."""
        blocks = self._pool.find(keys[:most])
        return blocks[:-1] if self._drops else blocks

    def register(self, table: Table, full: int, *, in_step: bool) -> None:
        """The first `full` blocks of `table` hold the content of their keys from now on."""
        assert isinstance(table, BlockTable)
        new = slice(table.registered, full)
        self._pool.register(table.blocks[new], table.keys[new])
        table.registered = full
