"""Block tables of windows as vLLM's Simple connector last saw them.

Numbers of blocks that windows have freed stay in them, although another sequence may hold the block
by now.
"""

from kvsim.engine.connectors.connector import Decided, DeviceBlocks
from kvsim.engine.connectors.simple.settings import SimpleSettings
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


class SeenTables:
    """Block numbers by sequence and group with a window; 0 where a table had no block when a step
    reported it.
    """

    def __init__(self, settings: SimpleSettings) -> None:
        self._size = settings.block_tokens
        groups = enumerate(settings.groups)
        self._groups = [g for g, group in groups if group.reach_tokens]
        self._seen: dict[Sequence, dict[int, list[int]]] = {}

    def of(self, seq: Sequence, g: int) -> list[int] | None:
        """The table of `seq` in group g; None: the group frees no blocks before the end."""
        return self._seen[seq][g] if g in self._groups else None

    def forget(self, seq: Sequence) -> None:
        """Drop the tables of `seq`, which was preempted or is done."""
        self._seen.pop(seq, None)

    def update(self, step: Decided, device: DeviceBlocks) -> None:
        """Append what the step reports: whole tables of admitted sequences, and new blocks."""
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
