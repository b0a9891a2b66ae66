"""Decoding sequences of a paged allocator, which advance together, and the registration of the
blocks that they fill.
"""

from collections.abc import Callable, Iterator

from kvsim.memory.cohorts import Cohort, Cohorts
from kvsim.memory.content_keys import KeyRuns
from kvsim.memory.paged.blocks import Table
from kvsim.sequence import Sequence, by_order


class Decoders:
    """The decoding sequences and their slots.

    clock: decode steps so far. extended: sequences with memory already allocated for their next
    token.
    """

    def __init__(self, block_size: int) -> None:
        self.clock = 0
        self.extended: set[Sequence] = set()
        self._cohorts = Cohorts(block_size)

    @property
    def num(self) -> int:
        """Number of decoding sequences."""
        return self._cohorts.num

    def join(self, seq: Sequence, table: Table, num_tokens: int, *, in_flight: bool) -> None:
        """`seq`, with `num_tokens` valid slots, decodes from the next step on. in_flight: the step
        that filled its last slot has not returned yet.
        """
        table.base = num_tokens - self.clock
        more = 0
        if table.joined:  # else its slots hold the prompt, which is known
            more = -1 if in_flight else 1
        table.joined, table.returned = num_tokens, num_tokens + more
        self._cohorts.join(seq, table.base)

    def leave(self, seq: Sequence, table: Table) -> None:
        """Remove `seq` from the decoders; its number of slots is stored in its table again."""
        self._cohorts.leave(seq, table.base)
        self.extended.discard(seq)
        table.tokens = table.base + self.clock

    def slots(self, seq: Sequence) -> int:
        """Valid slots of a live sequence, decoding or not."""
        table: Table = seq.memory
        return table.base + self.clock if seq.decoding else table.tokens

    def at(self, clock: int) -> Cohort:
        """Sequences that start a new block in the step that begins at `clock`."""
        return self._cohorts.at(clock)

    def without_room(self) -> list[Sequence]:
        """Sequences that need a new block for the next step and lack it, in `order`."""
        cohort = self._cohorts.at(self.clock)
        waiting = cohort.keys() - self.extended if self.extended else cohort
        return sorted(waiting, key=by_order)

    def not_extended(self) -> list[Sequence]:
        """Decoding sequences without memory allocated for their next token, in `order`."""
        return sorted((seq for seq in self._cohorts if seq not in self.extended), key=by_order)

    def steps_within(self, blocks: int, limit: int) -> int:
        """Number of steps from now on for which `blocks` new blocks suffice, at most `limit`."""
        return self._cohorts.steps_within(blocks, self.clock, limit)

    def block_starts(self, steps: int) -> Iterator[tuple[int, Cohort]]:
        """(t, cohort) in order for each of the next steps t = 1 .. `steps` in which a cohort starts
        new blocks.
        """
        return self._cohorts.block_starts(self.clock, steps)

    def advance(self, steps: int) -> None:
        """All sequences took one slot in each of `steps` steps."""
        self.clock += steps
        self.extended.clear()


class Filling:
    """Decoders with further blocks to register in the prefix cache as they fill.

    register: registers the next block of a table, full at a clock; returns True after the last
    block that has a key. lag: tokens by which generated content is hashed late.
    """

    def __init__(self, register: Callable[[Table, int], bool], block_size: int, lag: int) -> None:
        self._register = register
        self._lag = lag
        self._size = block_size
        self._cohorts = Cohorts(block_size)
        self._early: dict[Sequence, None] = {}  # their next slot is known with its step

    @property
    def num(self) -> int:
        """Number of decoding sequences."""
        return self._cohorts.num

    def join(self, seq: Sequence, table: Table) -> None:
        """Add the decoding `seq`, with blocks still to register."""
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
        """Register the blocks filled by decoders that precede `order` in the step that begins at
        `clock`, since they were scheduled first.
        """
        if self._early:
            self._register_early(clock, order)
            return
        known = clock - self._lag + 1
        for seq in sorted(self._cohorts.at(known), key=by_order):
            if seq.order < order:
                self._register_next(seq, known)

    def _register_early(self, clock: int, order: int | None) -> None:
        """`turns_before` for the case that a step skipped some decoders. order: None for all
        decoders.
        """
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
        """Whether a decoder is about to fill a block equal to one of the first `num_blocks` of
        `keys`. units: keys for each block.
        """
        for seq in self._cohorts:
            table: Table = seq.memory
            if table.registered < num_blocks:
                end = (table.registered + 1) * units - 1
                if table.runs.at(end) == keys.at(end):
                    return True
        return False
