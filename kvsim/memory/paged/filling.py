"""Decoders that fill blocks with keys, all advancing together."""

from collections.abc import Callable

from kvsim.memory.cohorts import Cohorts
from kvsim.memory.content_keys import KeyRuns
from kvsim.memory.paged.table import Table
from kvsim.sequence import Sequence, by_order


class Filling:
    """The decoders that fill blocks with keys.

    register: registers the next block of a table, full at a clock, and returns whether it was the
    last one with keys. lag: tokens by which content becomes known late.
    """

    def __init__(self, register: Callable[[Table, int], bool], block_size: int, lag: int) -> None:
        self._register = register
        self._lag = lag
        self._size = block_size
        self._cohorts = Cohorts(block_size)
        self._early: dict[Sequence, None] = {}  # their next slot is known with its step

    @property
    def num(self) -> int:
        """Number of them."""
        return self._cohorts.num

    def join(self, seq: Sequence, table: Table) -> None:
        """`seq` decodes; its next full blocks have keys."""
        self._cohorts.join(seq, table.base)
        # Its newest token has returned, as that of a sequence that was passed over.
        if self._lag and table.returned > table.joined and not table.returned % self._size:
            self._early[seq] = None

    def leave(self, seq: Sequence, table: Table) -> None:
        """`seq` stops decoding."""
        self._cohorts.leave(seq, table.base)
        self._early.pop(seq, None)

    def advanced(self, clock: int, steps: int) -> None:
        """Decoders took `steps` slots each from `clock` on: register the blocks filled by them."""
        if self._early:
            self._register_early(clock, None)
            self._early.clear()
            steps, clock = steps - 1, clock + 1
        known = clock - self._lag
        for t in range(1, steps + 1):
            cohort = self._cohorts.at(known + t)
            if cohort:
                for seq in sorted(cohort, key=by_order):
                    self._register_next(seq, known + t)

    def turns_before(self, order: int, clock: int) -> None:
        """Decoders before `order` have had their turn in the step that begins at `clock`."""
        if self._early:
            self._register_early(clock, order)
            return
        known = clock - self._lag + 1
        for seq in sorted(self._cohorts.at(known), key=by_order):
            if seq.order < order:
                self._register_next(seq, known)

    def _register_early(self, clock: int, order: int | None) -> None:
        """`turns_before` if some decoders were passed over. order: None for all decoders."""
        known = clock - self._lag + 1
        found = dict.fromkeys(self._cohorts.at(known), known)
        found |= dict.fromkeys(self._early, clock + 1)
        for seq in sorted(found, key=by_order):
            if order is None or seq.order < order:
                self._register_next(seq, found[seq])

    def _register_next(self, seq: Sequence, clock: int) -> None:
        table: Table = seq.memory
        if self._register(table, clock):
            self._cohorts.leave(seq, table.base)

    def may_make(self, keys: KeyRuns, num_blocks: int, units: int) -> bool:
        """Whether a decoder is filling one of the first `num_blocks` blocks of `keys`, `units` keys
        a block.
        """
        for seq in self._cohorts:
            table: Table = seq.memory
            if table.registered < num_blocks:
                end = (table.registered + 1) * units - 1
                if table.runs.at(end) == keys.at(end):
                    return True
        return False
