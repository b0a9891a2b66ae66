"""Block tables of layers with a sliding window, as vLLM's Simple connector last received them.

The scheduler reports only new blocks. So these tables also contain ids of blocks that a window has
freed since, even if another sequence holds the block now.
"""

from kvsim.engine.connectors.connector import Decided, DeviceBlocks
from kvsim.engine.connectors.simple.settings import SimpleSettings
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


class SeenTables:
    """Block ids by sequence and by layer group with a window. 0: the position had no block when a
    step reported the table.
    """

    def __init__(self, settings: SimpleSettings) -> None:
        self._size = settings.block_tokens
        groups = enumerate(settings.groups)
        self._groups = [g for g, group in groups if group.reach_tokens]
        self._seen: dict[Sequence, dict[int, list[int]]] = {}

    def of(self, seq: Sequence, g: int) -> list[int] | None:
        """The table of `seq` in group g; None if the group frees no blocks before the sequence
        ends, so that its current table is used.
        """
        return self._seen[seq][g] if g in self._groups else None

    def forget(self, seq: Sequence) -> None:
        """Drop the tables of `seq`, which was preempted or is done."""
        self._seen.pop(seq, None)

    def update(self, step: Decided, device: DeviceBlocks) -> None:
        """Add what the step reports: whole tables of newly admitted sequences, and new blocks of
        running ones.
        """
        if not self._groups:
            return
        for seq in step.admitted:
            self._seen[seq] = {g: [] for g in self._groups}
        for seq in (*step.admitted, *step.stepping):
            tables, num = self._seen[seq], ceil_div(device.computed_tokens(seq), self._size)
            if all(len(table) >= num for table in tables.values()):
                continue
            held, skipped = device.blocks_of(seq), device.skipped_blocks(seq)
            for g, table in tables.items():
                gap = max(0, skipped[g] - len(table))
                table += [0] * gap
                table += held[g][len(table) - skipped[g] :]
