"""One block table a sequence, over one pool: what the prefix cache asks of it."""

from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.table import BlockTable, Table


class OneTable:
    """See `prefix_cache.Tables`."""

    names_private = False

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.fresh = BlockTable
        self.find = pool.find
        self.may_move = pool.has_spare

    def register(self, table: Table, full: int) -> None:
        """The first `full` blocks of `table` hold the content of their keys from now on."""
        assert isinstance(table, BlockTable)
        new = slice(table.registered, full)
        self._pool.register(table.blocks[new], table.keys[new])
        table.registered = full
