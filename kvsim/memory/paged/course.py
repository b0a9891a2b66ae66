"""How the ledger of one block table a sequence moves while decoders start blocks."""

from collections.abc import Iterable
from typing import Protocol

from kvsim.memory.ledger import Course, Usage, course_of, usage_of
from kvsim.memory.paged.kept import OUTPUT, Kept
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.paged.slot_counts import SlotCounts
from kvsim.memory.parts import CACHED_OUTPUTS, PartMove


class Evicting(Protocol):
    """A pool that counts the blocks taken from it that had held content."""

    num_evicted: int
    kept: Kept


# t, blocks taken, evicted for it, of these those of outputs, slots of them never filled
Moment = tuple[int, int, int, int, int]


class BlockStarts:
    """Counts what is taken during one `advance`, moment by moment."""

    def __init__(self, shape: BlockShape, pool: Evicting, counts: SlotCounts) -> None:
        self._shape, self._pool, self._counts = shape, pool, counts
        self._evicted_before = pool.num_evicted
        self._outputs_before = pool.kept.nums[OUTPUT]
        self._over_before = counts.over
        self._moments: list[Moment] = []

    def at(self, t: int, num_taken: int) -> None:
        """At step t so many blocks were taken."""
        evicted, over = self._pool.num_evicted, self._counts.over
        outputs = self._pool.kept.nums[OUTPUT]
        gone, gone_outputs = evicted - self._evicted_before, self._outputs_before - outputs
        self._moments.append((t, num_taken, gone, gone_outputs, over - self._over_before))
        self._evicted_before, self._outputs_before, self._over_before = evicted, outputs, over

    def course(self, slope: Usage) -> Course:
        """How the ledger moved, `slope` a step beside the blocks taken."""
        return block_course(self._shape, slope, self._moments)


def block_course(shape: BlockShape, slope: Usage, moments: Iterable[Moment]) -> Course:
    """How the ledger moves where blocks are taken at these moments, as sums weighted by 1, t and
    t * (t - 1) / 2. Of the blocks taken some were cached till then; and of their slots some will
    stay empty.
    """
    taken0 = taken1 = taken2 = gone0 = gone1 = gone2 = over0 = over1 = over2 = 0
    outputs0 = outputs1 = outputs2 = 0
    for t, taken, evicted, outputs, over in moments:
        pairs = t * (t - 1) // 2
        taken0 += taken
        taken1 += taken * t
        taken2 += taken * pairs
        if evicted:
            gone0 += evicted
            gone1 += evicted * t
            gone2 += evicted * pairs
            if outputs:
                outputs0 += outputs
                outputs1 += outputs * t
                outputs2 += outputs * pairs
        if over:
            over0 += over
            over1 += over * t
            over2 += over * pairs
    if not taken0:
        return Course(slope)
    parts: tuple[PartMove, ...] = ()
    if outputs0:
        size = -shape.block_bytes
        parts = ((CACHED_OUTPUTS, outputs0 * size, outputs1 * size, outputs2 * size),)
    jumps = _taken(shape, taken0, gone0, over0)
    first, second = _taken(shape, taken1, gone1, over1), _taken(shape, taken2, gone2, over2)
    return course_of(slope, jumps, first, second, parts)


def _taken(shape: BlockShape, taken: int, evicted: int, over: int) -> Usage:
    """What the ledger gains and loses."""
    block_bytes = shape.block_bytes
    over_bytes, pad_bytes = over * shape.slot_bytes, taken * shape.pad_bytes
    reserved = taken * block_bytes - over_bytes - pad_bytes
    gone, idle = -evicted * block_bytes, (evicted - taken) * block_bytes
    return usage_of((0, reserved, over_bytes, pad_bytes, gone, 0, 0, 0, 0, idle))
