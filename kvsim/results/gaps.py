"""Exact quantiles of inter-token latencies, computed from spans of equal gaps without a list of
tokens.

A span (sequences, steps, first_ps, growth_ps) stands for sequences * steps gaps: first_ps +
growth_ps * t for t < steps, each `sequences` times.
"""

from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_LIMB = (1 << 21) - 1
_ROWS = 1 << 20  # of so many products of two limbs the sum still fits


class TokenGaps:
    """All inter-token gaps of a run. spans: flat rows of four; singles: further single gaps, in
    ps.
    """

    def __init__(self, spans: "array[int]", singles: "array[int]") -> None:
        rows = np.frombuffer(spans, dtype=np.int64).reshape(-1, 4)
        alone = np.frombuffer(singles, dtype=np.int64)
        ones = np.ones_like(alone)
        columns = zip(rows.T, (ones, ones, alone, np.zeros_like(alone)), strict=True)
        self._rows = np.stack([np.concatenate(column) for column in columns])
        count, steps, first, growth = self._rows
        self._numbers = count * steps
        self._last = first + growth * (steps - 1)
        self.num = int(self._numbers.sum())

    def mean_ps(self) -> float:
        """The mean gap in ps: exact integer sums, one division."""
        count, steps, first, growth = self._rows
        pairs = steps * (steps - 1) // 2
        total = exact_dot(self._numbers, first) + exact_dot(count * pairs, growth)
        return total / self.num

    def quantiles_ps(self, shares: Iterable[float]) -> list[float]:
        """The quantiles in ps, linear between neighbours, as numpy's default."""
        # No gap of a span lies further from its middle than half of the longest span, and so
        # no gap in sorted order further from the middle in its place.
        middles = (self._rows[2] + self._last) // 2
        order = np.argsort(middles)
        reached = np.cumsum(self._numbers[order])
        spread = int((self._last - middles).max())
        found = []
        for share in shares:
            rank = share * (self.num - 1)
            index = int(rank)
            middle = int(middles[order[np.searchsorted(reached, index, side="right")]])
            below = self._at(index, middle - spread, middle + spread)
            above = self._next(below, index) if rank > index else below
            found.append(below + (above - below) * (rank - index))
        return found

    def _at(self, index: int, low: int, high: int) -> int:
        """The gap with `index` gaps before it in sorted order, found between `low` and `high` by
        bisection.

        Spans with all gaps below the searched range are counted once, spans with all gaps above it
        not at all.
        """
        over = self._last < low
        below = int(self._numbers[over].sum())
        rows = self._rows[:, ~over & (self._rows[2] <= high)]
        while low < high:
            middle = (low + high) // 2
            if below + _not_above(middle, rows) > index:
                high = middle
                rows = rows[:, rows[2] <= high]
            else:
                low = middle + 1
                over = rows[2] + rows[3] * (rows[1] - 1) < low
                below += int((rows[0] * rows[1])[over].sum())
                rows = rows[:, ~over]
        return low

    def _next(self, gap_ps: int, index: int) -> int:
        """The gap after the one at `index` (which is `gap_ps`) in sorted order."""
        if _not_above(gap_ps, self._rows) > index + 1:
            return gap_ps
        _, _, first, growth = self._rows[:, self._last > gap_ps]
        passed = np.maximum((gap_ps - first) // np.maximum(growth, 1) + 1, 0)
        return int((first + growth * passed).min())


def _not_above(gap_ps: int, rows: NDArray[np.int64]) -> int:
    """Number of gaps <= gap_ps in the spans `rows` (4, n)."""
    count, steps, first, growth = rows
    reached = np.where(
        growth > 0,
        np.clip((gap_ps - first) // np.maximum(growth, 1) + 1, 0, steps),
        np.where(first <= gap_ps, steps, 0),
    )
    return int((reached * count).sum())


def exact_dot(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    """The sum of a * b over (n,) elements as a Python int, computed in limbs of 21 bits as int64
    would overflow.
    """
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
