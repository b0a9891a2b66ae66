"""Inter-token latencies without the tokens: exact order statistics of gaps kept as stretches.

A stretch (sequences, steps, first_ps, growth_ps) stands for sequences * steps gaps:
first_ps + growth_ps * t for t < steps, each `sequences` times.
"""

from array import array

import numpy as np
from numpy.typing import NDArray

_LIMB = (1 << 21) - 1
_ROWS = 1 << 20  # of so many products of two limbs the sum still fits


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
        total = exact_dot(self._count * self._steps, self._first)
        total += exact_dot(self._count * pairs, self._growth)
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
        than `index` gaps do not exceed. Stretches all below the values in question are counted
        once, those all above them not at all.
        """
        rows = np.stack((self._count, self._steps, self._first, self._growth))
        low, high = 0, self._largest()
        below = 0
        while low < high:
            middle = (low + high) // 2
            if below + self._not_above(middle, rows) > index:
                high = middle
                rows = rows[:, rows[2] <= high]
            else:
                low = middle + 1
                over = rows[2] + rows[3] * (rows[1] - 1) < low
                below += int((rows[0] * rows[1])[over].sum())
                rows = rows[:, ~over]
        return low

    def _largest(self) -> int:
        last = self._first + self._growth * (self._steps - 1)
        return max(
            int(last.max()) if len(last) else 0,
            int(self._singles[-1]) if len(self._singles) else 0,
        )

    def _not_above(self, gap_ps: int, rows: NDArray[np.int64]) -> int:
        """How many gaps of the stretches `rows` (4, n), and of the single ones, are <= gap_ps."""
        count, steps, first, growth = rows
        reached = np.where(
            growth > 0,
            np.clip((gap_ps - first) // np.maximum(growth, 1) + 1, 0, steps),
            np.where(first <= gap_ps, steps, 0),
        )
        singles = int(np.searchsorted(self._singles, gap_ps, side="right"))
        return int((reached * count).sum()) + singles


def exact_dot(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    """The sum of a * b, (n,) each, where no int64 could hold it: by limbs of 21 bits."""
    total = 0
    for first in range(0, len(a), _ROWS):
        limbs = [
            (part & _LIMB, part >> 21 & _LIMB, part >> 42)
            for part in (a[first : first + _ROWS], b[first : first + _ROWS])
        ]
        for i, x in enumerate(limbs[0]):
            for j, y in enumerate(limbs[1]):
                total += int(np.dot(x, y)) << (21 * (i + j))
    return total
