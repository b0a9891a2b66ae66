"""How the free blocks move while all decode: who takes, and who gives back, step by step."""

from collections.abc import Iterator

from kvsim.memory.paged.decoders import Decoders
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.tables import BlockTables
from kvsim.memory.paged.windows import Windows
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.sizes import Sizes


class Forecast:
    """Reads the decoders, their windows and the pool; changes none of them."""

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
        """(taken, given): blocks of each step from now on, for at most `limit` steps and as long as
        the rhythm of giving stays. Of those given others may still hold some.
        """
        clock, each = self._decoders.clock, self._tables.most_new_blocks
        alike = self._sizes.unit == self._sizes.whole
        for later in range(clock, clock + min(limit, self._windows.steady_steps(clock))):
            members = self._decoders.at(later)
            given = self._windows.num_given(later)
            if later == clock and self._decoders.extended:
                members = {s: None for s in members if s not in self._decoders.extended}
                given = 0
            if alike:
                yield each * len(members), given
            else:
                new_blocks = self._tables.new_blocks
                yield sum(new_blocks(seq.memory.base + later) for seq in members), given

    def steps_that_fit(self, limit: int) -> int:
        """Steps that are safe even if all take before anybody gives."""
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
        """For how many steps the head, with `spare` blocks more than it asks for (negative: less),
        stays on its side of enough. delicate: it does only until the next block moves.
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
