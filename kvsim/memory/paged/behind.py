"""What windows have left behind in block tables that keep every token."""

from collections.abc import Iterable

from kvsim.layout import KVLayout
from kvsim.memory.ledger import Course
from kvsim.memory.left_behind import LeftBehind, Mover
from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.decoders import Decoders
from kvsim.memory.paged.table import BlockTable
from kvsim.sequence import Sequence


class BehindInBlocks:
    """See `LeftBehind`: here what others hold is told by their blocks. False without windows."""

    def __init__(
        self, layout: KVLayout, pool: BlockPool, decoders: Decoders, block_size: int
    ) -> None:
        self._behind = LeftBehind(layout)
        self._pool, self._decoders, self._size = pool, decoders, block_size

    def __bool__(self) -> bool:
        return bool(self._behind)

    def bytes(self, live: Iterable[Sequence]) -> int:
        """Of all live sequences."""
        if not self._behind:
            return 0
        movers = map(self._mover, live)
        return sum(self._behind.bytes(computed, shared) for computed, _, shared in movers)

    def movers(self, live: Iterable[Sequence]) -> list[Mover]:
        """Those of them that decode."""
        return [self._mover(seq) for seq in live if seq.decoding] if self._behind else []

    def during(self, course: Course, movers: list[Mover], steps: int) -> Course:
        """`course`, in which these took one slot a step, with what they left on the way."""
        return self._behind.during(course, movers, steps)

    def _mover(self, seq: Sequence) -> Mover:
        """Where a live sequence stands."""
        table: BlockTable = seq.memory
        slots, computed, shared = self._decoders.slots(seq), table.computed, 0
        if seq.decoding and slots > table.joined:
            computed = slots - 1
        if self._pool.num_shared:
            shared = self._pool.num_leading_shared(table.blocks) * self._size
        return Mover(computed, slots, shared)
