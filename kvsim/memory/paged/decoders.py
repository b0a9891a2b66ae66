"""The decoding sequences of a paged allocator, which advance together."""

from collections.abc import Iterator

from kvsim.memory.cohorts import Cohort, Cohorts
from kvsim.memory.paged.table import Table
from kvsim.sequence import Sequence, by_order


class Decoders:
    """The decoding sequences and their slots.

    clock: decode steps so far. extended: sequences that were given memory for their next token.
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
        that filled the last of them has not returned then.
        """
        table.base = num_tokens - self.clock
        more = 0
        if table.joined:  # else its slots hold the prompt, which is known
            more = -1 if in_flight else 1
        table.joined, table.returned = num_tokens, num_tokens + more
        self._cohorts.join(seq, table.base)

    def leave(self, seq: Sequence, table: Table) -> None:
        """`seq` stops decoding; its slots are a plain number again."""
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
        """Sequences that lack the block that they start in the next step, in `order`."""
        cohort = self._cohorts.at(self.clock)
        waiting = cohort.keys() - self.extended if self.extended else cohort
        return sorted(waiting, key=by_order)

    def not_extended(self) -> list[Sequence]:
        """Sequences that are not in `extended`, in `order`."""
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
