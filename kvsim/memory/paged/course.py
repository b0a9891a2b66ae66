"""How the ledger of one block table a sequence moves while decoders start blocks."""

from kvsim.memory.ledger import NOTHING, Course, Usage
from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.paged.slot_counts import SlotCounts


class BlockStarts:
    """Counts what is taken during one `advance`, as sums weighted by 1, t and t * (t - 1) / 2.

    Of the blocks taken some were cached till then; and of their slots some will stay empty.
    """

    def __init__(self, shape: BlockShape, pool: BlockPool, counts: SlotCounts) -> None:
        self._shape, self._pool, self._counts = shape, pool, counts
        self._evicted_before = pool.num_evicted
        self._over_before = counts.over
        self._taken = [0, 0, 0]
        self._evicted = [0, 0, 0]
        self._over = [0, 0, 0]

    def at(self, t: int, num_taken: int) -> None:
        """At step t so many blocks were taken."""
        evicted, over = self._pool.num_evicted, self._counts.over
        for i, weight in enumerate((1, t, t * (t - 1) // 2)):
            self._taken[i] += num_taken * weight
            self._evicted[i] += (evicted - self._evicted_before) * weight
            self._over[i] += (over - self._over_before) * weight
        self._evicted_before, self._over_before = evicted, over

    def course(self, slope: Usage) -> Course:
        """How the ledger moved, `slope` a step beside the blocks taken."""
        jumps, first, second = map(self._moment, self._taken, self._evicted, self._over)
        return Course(slope, jumps, first, second)

    def _moment(self, taken: int, evicted: int, over: int) -> Usage:
        if not taken:
            return NOTHING
        shape = self._shape
        over_bytes, pad_bytes = over * shape.slot_bytes, taken * shape.pad_bytes
        return Usage(
            reserved=taken * shape.block_bytes - over_bytes - pad_bytes,
            overprovisioned=over_bytes,
            rounding=pad_bytes,
            cached=-evicted * shape.block_bytes,
            idle=-(taken - evicted) * shape.block_bytes,
        )
