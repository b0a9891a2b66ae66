"""Cohorts: decoders that reach the end of a block in the same steps.

A decoder that joined at clock j with n slots has n - j + clock of them. With `base` n - j, it
starts a new block in a step that begins where base + clock is a multiple of block_size. So do all
with the same base modulo block_size.
"""

from collections.abc import Iterator

from kvsim.sequence import Sequence

Cohort = dict[Sequence, None]


class Cohorts:
    """Decoders grouped by `base` modulo block_size. num: total number of decoders."""

    def __init__(self, block_size: int) -> None:
        self.num = 0
        self._size = block_size
        self._cohorts: list[Cohort] = [{} for _ in range(block_size)]

    def __iter__(self) -> Iterator[Sequence]:
        for cohort in self._cohorts:
            yield from cohort

    def join(self, seq: Sequence, base: int) -> None:
        """Add `seq`, which decodes (or waits for a step), with this base."""
        self._cohorts[base % self._size][seq] = None
        self.num += 1

    def leave(self, seq: Sequence, base: int) -> None:
        """Remove `seq`; no effect if it is no member."""
        if self._cohorts[base % self._size].pop(seq, self) is not self:
            self.num -= 1

    def at(self, clock: int) -> Cohort:
        """The decoders that start a new block in the step at `clock`: their number of slots is a
        multiple of block_size.
        """
        return self._cohorts[-clock % self._size]

    def steps_within(self, blocks: int, clock: int, limit: int) -> int:
        """Number of steps from `clock` on for which `blocks` blocks suffice, at most `limit`: whole
        cycles first, then cohort by cohort.
        """
        if not self.num:
            return limit
        cycles, rest = divmod(blocks, self.num)
        steps = cycles * self._size
        if steps >= limit:
            return limit
        for later in range(clock, clock + self._size):
            rest -= len(self.at(later))
            if rest < 0:
                break
            steps += 1
        return min(steps, limit)

    def block_starts(self, clock: int, steps: int) -> Iterator[tuple[int, Cohort]]:
        """(t, cohort) in order for each of the steps t = 1 .. `steps` from `clock` on in which a
        cohort starts new blocks.
        """
        size, cohorts = self._size, self._cohorts
        if steps <= size:
            for t in range(1, steps + 1):
                cohort = cohorts[(1 - clock - t) % size]
                if cohort:
                    yield t, cohort
            return
        first = sorted(((-r - clock) % size + 1, r) for r in range(size) if cohorts[r])
        for cycle in range(0, steps, size):
            for t, r in first:
                if cycle + t <= steps:
                    yield cycle + t, cohorts[r]
