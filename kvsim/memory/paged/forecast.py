"""The blocks that decoders will take and free, step by step."""

from collections.abc import Iterator

from kvsim.memory.paged.decoders import Decoders
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.tables import BlockTables
from kvsim.memory.paged.windows import Windows
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.sizes import Sizes


class Forecast:
    """Predicts free blocks from the decoders, their windows and the pool; changes none of them."""

    def __init__(
        self,
        pool: BlockPool,
        tables: BlockTables,
        decoders: Decoders,
        windows: Windows,
        sizes: Sizes,
    ) -> None:
        self._pool, self._tables = pool, tables
        self._decoders, self._windows = decoders, windows
        self._sizes = sizes

    def _moves(self, limit: int) -> Iterator[tuple[int, int]]:
        """(taken, freed): blocks of each step from now on, for at most `limit` steps and while
        windows free blocks at the same rate. Other sequences may still hold freed blocks.
        """
        clock, each = self._decoders.clock, self._tables.most_new_blocks
        uniform = self._sizes.unit == self._sizes.whole
        for later in range(clock, clock + min(limit, self._windows.steady_steps(clock))):
            members = self._decoders.at(later)
            given = self._windows.num_given(later)
            if later == clock and self._decoders.extended:
                members = {s: None for s in members if s not in self._decoders.extended}
                given = 0
            if uniform:
                yield each * len(members), given
            else:
                new_blocks = self._tables.new_blocks
                yield sum(new_blocks(seq.memory.base + later) for seq in members), given

    def steps_that_fit(self, limit: int) -> int:
        """Steps for which blocks suffice even if all are taken before any is freed."""
        starts = self._decoders.num * ceil_div(limit, self._sizes.unit)
        spare = self._pool.num_free
        if starts * self._tables.most_new_blocks <= spare:
            return limit
        fitting = 0
        for taken, given in self._moves(limit):
            if taken > spare:
                break
            fitting += 1
            spare -= taken
            if not self._pool.num_shared:
                spare += given
        return fitting

    def steps_head_stays_blocked(self, spare: int, limit: int, *, delicate: bool) -> int:
        """Number of steps, at most `limit`, during which the head stays short of blocks, or not
        short. spare: free blocks beyond its need, negative if short. delicate: the result ends when
        a block is taken or freed.
        """
        if spare < 0 and self._windows.irregular(self._decoders.clock):
            return 0
        steps, enough = 0, spare >= 0
        for taken, given in self._moves(limit):
            spare -= taken
            if not (enough and self._pool.num_shared):
                spare += given
            if (spare >= 0) != enough or (delicate and (taken or given)):
                break
            steps += 1
        return steps
