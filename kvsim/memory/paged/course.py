"""How the ledger of one block table a sequence moves while decoders start blocks."""

from typing import Protocol

from kvsim.memory.ledger import NOTHING, Course, Usage
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.paged.slot_counts import SlotCounts


class Evicting(Protocol):
    """A pool that counts the blocks taken from it that had held content."""

    num_evicted: int


class BlockStarts:
    """Counts what is taken during one `advance`, as sums weighted by 1, t and t * (t - 1) / 2.

    Of the blocks taken some were cached till then; and of their slots some will stay empty.
    """

    def __init__(self, shape: BlockShape, pool: Evicting, counts: SlotCounts) -> None:
        self._shape, self._pool, self._counts = shape, pool, counts
        self._evicted_before = pool.num_evicted
        self._over_before = counts.over
        self._moments: list[tuple[int, int, int, int]] = []  # t, taken, evicted, over

    def at(self, t: int, num_taken: int) -> None:
        """At step t so many blocks were taken."""
        evicted, over = self._pool.num_evicted, self._counts.over
        self._moments.append(
            (t, num_taken, evicted - self._evicted_before, over - self._over_before)
        )
        self._evicted_before, self._over_before = evicted, over

    def course(self, slope: Usage) -> Course:
        """How the ledger moved, `slope` a step beside the blocks taken."""
        if not self._moments:
            return Course(slope)
        sums = [0] * 9
        for t, taken, evicted, over in self._moments:
            pairs = t * (t - 1) // 2
            sums[0] += taken
            sums[1] += evicted
            sums[2] += over
            sums[3] += taken * t
            sums[4] += evicted * t
            sums[5] += over * t
            sums[6] += taken * pairs
            sums[7] += evicted * pairs
            sums[8] += over * pairs
        return Course(
            slope, self._moment(*sums[:3]), self._moment(*sums[3:6]), self._moment(*sums[6:])
        )

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
