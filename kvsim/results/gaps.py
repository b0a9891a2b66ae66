"""Inter-token latencies without the tokens: exact order statistics of gaps kept as stretches.

A stretch (sequences, steps, first_ps, growth_ps) stands for sequences * steps gaps:
first_ps + growth_ps * t for t < steps, each `sequences` times.
"""

from array import array

import numpy as np


class Gaps:
    """All gaps of a run. stretches: flat rows of four; singles: gaps of their own, in ps."""

    def __init__(self, stretches: "array[int]", singles: "array[int]") -> None:
        rows = np.frombuffer(stretches, dtype=np.int64).reshape(-1, 4)
        self._count, self._steps, self._first, self._growth = rows.T
        self._singles = np.sort(np.frombuffer(singles, dtype=np.int64))
        self.num = int((self._count * self._steps).sum()) + len(self._singles)

    def mean_ps(self) -> float:
        """The mean gap; exact sums, one division."""
        pairs = self._steps * (self._steps - 1) // 2
        total = sum(
            int(count) * (int(steps) * int(first) + int(pair) * int(growth))
            for count, steps, first, pair, growth in zip(
                self._count, self._steps, self._first, pairs, self._growth, strict=True
            )
        )
        return (total + int(self._singles.sum())) / self.num

    def quantile_ps(self, share: float) -> float:
        """The quantile, linear between neighbours as numpy's default."""
        rank = share * (self.num - 1)
        low = int(rank)
        below = self._at(low)
        above = self._at(low + 1) if rank > low else below
        return below + (above - below) * (rank - low)

    def _at(self, index: int) -> int:
        """The gap that `index` others come before in sorted order: the least value that more
        than `index` gaps do not exceed.
        """
        low, high = 0, self._largest()
        while low < high:
            middle = (low + high) // 2
            if self._not_above(middle) > index:
                high = middle
            else:
                low = middle + 1
        return low

    def _largest(self) -> int:
        last = self._first + self._growth * (self._steps - 1)
        return max(
            int(last.max()) if len(last) else 0,
            int(self._singles[-1]) if len(self._singles) else 0,
        )

    def _not_above(self, gap_ps: int) -> int:
        """How many gaps are <= gap_ps."""
        growth = np.maximum(self._growth, 1)
        steps = np.where(
            self._growth > 0,
            np.clip((gap_ps - self._first) // growth + 1, 0, self._steps),
            np.where(self._first <= gap_ps, self._steps, 0),
        )
        singles = int(np.searchsorted(self._singles, gap_ps, side="right"))
        return int((steps * self._count).sum()) + singles
