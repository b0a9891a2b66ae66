"""Slots outside their windows in block tables that store every token."""

from collections.abc import Iterable

from kvsim.memory.ledger import Course
from kvsim.memory.left_behind import LeftBehind, WindowedDecoder
from kvsim.memory.paged.blocks import Table
from kvsim.memory.paged.decoders import Decoders
from kvsim.memory.paged.tables import BlockTables
from kvsim.sequence import Sequence


class BehindInBlocks:
    """Counts slots outside sliding windows in block tables; a slot is shared if its block is."""

    def __init__(self, windows: LeftBehind, tables: BlockTables, decoders: Decoders) -> None:
        self._windows = windows
        self._tables, self._decoders = tables, decoders

    def of_all(self, live: Iterable[Sequence]) -> int:
        """Bytes of slots outside the windows, summed over all live sequences."""
        decoders = [self._decoder(seq) for seq in live if self._outgrows(seq)]
        return sum(self._windows.bytes(computed, shared) for computed, _, shared in decoders)

    def decoders(self, live: Iterable[Sequence]) -> list[WindowedDecoder]:
        """The decoding sequences among `live`."""
        return [self._decoder(seq) for seq in live if seq.decoding and self._outgrows(seq)]

    def during(self, course: Course, decoders: list[WindowedDecoder], steps: int) -> Course:
        """See `LeftBehind.during`."""
        return self._windows.during(course, decoders, steps)

    def _outgrows(self, seq: Sequence) -> bool:
        """Whether the final length of the sequence exceeds the shortest window."""
        return seq.final_tokens >= self._windows.least_tokens

    def _decoder(self, seq: Sequence) -> WindowedDecoder:
        """Slot counts of a live sequence, from which slots outside windows are computed."""
        table: Table = seq.memory
        slots, computed = self._decoders.slots(seq), table.computed
        if seq.decoding and slots > table.joined:
            computed = slots - 1
        return WindowedDecoder(computed, slots, self._tables.leading_shared(table))
