"""The connector's own block tables of sliding-window layers (vLLM 0.33,
kv_connector/v1/offloading/scheduler.py).

The device frees such blocks while their sequence runs. Their content can be stored until the blocks
are allocated to others.
"""

from kvsim.engine.connectors.connector import Decided, DeviceBlocks
from kvsim.engine.connectors.offloading.settings import OffloadSettings
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


def given(step: Decided, device: DeviceBlocks, settings: OffloadSettings) -> set[int]:
    """Block ids that a step allocates to sequences.

    For sequences that it admits or that begin to load these are whole tables, hits included. For
    others they are the new blocks.
    """
    found: set[int] = set()
    new = {*step.admitted, *step.loading}
    for seq in new:
        for blocks in device.blocks_of(seq):
            found.update(blocks)
    prior = {chunk.seq: chunk.prior_tokens for chunk in step.plan.chunks}
    for seq in step.stepping:
        if seq in new:
            continue
        held = device.held_before(seq)
        if held is not None:
            for blocks, num in zip(device.blocks_of(seq), held, strict=True):
                found.update(blocks[num:])
            continue
        computed = device.computed_tokens(seq)
        before = prior.get(seq, computed - 1)
        sizes = (group.block_tokens for group in settings.groups)
        if all(ceil_div(before, size) == ceil_div(computed, size) for size in sizes):
            continue
        tables, skipped = device.blocks_of(seq), device.skipped_blocks(seq)
        for g, group in enumerate(settings.groups):
            size = group.block_tokens
            if group.recurrent:
                new_state = ceil_div(before, size) < ceil_div(computed, size)
                found.update(tables[g][-1:] if new_state else ())
            else:
                found.update(tables[g][max(0, ceil_div(before, size) - skipped[g]) :])
    return found


class WindowTables:
    """Block ids by sequence and layer group; 0 where there is no block, or it was allocated to
    another sequence.
    """

    def __init__(self, settings: OffloadSettings) -> None:
        self._settings = settings
        groups = enumerate(settings.groups)
        self._watched = [
            g for g, each in groups if each.reach_tokens is not None and not each.recurrent
        ]
        self._ids: dict[Sequence, dict[int, list[int]]] = {}

    def __bool__(self) -> bool:
        """Whether any layer group has a sliding window."""
        return bool(self._watched)

    def of(self, seq: Sequence, g: int) -> list[int] | None:
        """The table of `seq` in layer group g; None: the group frees no blocks while its sequence
        runs.
        """
        return self._ids[seq][g] if g in self._watched else None

    def forget(self, seq: Sequence) -> None:
        """Drop the tables of `seq`, which starts again or is done."""
        self._ids.pop(seq, None)

    def update(
        self,
        step: Decided,
        device: DeviceBlocks,
        blocks: set[int],
        stored: dict[Sequence, list[int]],
    ) -> None:
        """Update the tables after a step, which allocates `blocks`.

        stored: by sequence and layer group, number of leading chunks that need not be offered any
        more.
        """
        own: dict[Sequence, dict[int, int]] = {}
        for seq in step.admitted:
            self._ids[seq] = {g: [] for g in self._watched}
        for seq in step.stepping:
            own[seq] = self._extended(seq, device)
        if not blocks:
            return
        for seq, tables in self._ids.items():
            for g, table in tables.items():
                first = stored[seq][g] * self._settings.groups[g].chunk_blocks
                for place in range(first, own.get(seq, {}).get(g, len(table))):
                    if table[place] in blocks:
                        table[place] = 0

    def _extended(self, seq: Sequence, device: DeviceBlocks) -> dict[int, int]:
        """Append the new blocks of `seq` to its tables; returns for each layer group the index of
        the first one.
        """
        tables, computed = self._ids[seq], device.computed_tokens(seq)
        begin = {
            g: len(table)
            for g, table in tables.items()
            if len(table) < ceil_div(computed, self._settings.groups[g].block_tokens)
        }
        if begin:
            held, skipped = device.blocks_of(seq), device.skipped_blocks(seq)
            for g, before in begin.items():
                gap = max(0, skipped[g] - before)
                tables[g] += [0] * gap + held[g][max(0, before - skipped[g]) :]
        return begin
