"""Bytes of each class summed over time or over steps, from the rows that a recorder wrote.

Exact: bytes times picoseconds exceed 64 bits, so both factors are cut into limbs whose products and
their sums do not.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kvsim.memory.ledger import CLASSES
from kvsim.results.series import LOW_BITS, MOVE_COLUMNS, SERIES_COLUMNS

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_FIRST_CLASS = SERIES_COLUMNS.index(f"{CLASSES[0]}_bytes")
_CLASSES = slice(_FIRST_CLASS, _FIRST_CLASS + len(CLASSES))
# Products of limbs and the sum of so many of them are whole numbers that a float64 holds.
LIMB_BITS, MOST_ROWS = 21, 1 << 11


def class_sums(
    series: Integers, moves: Integers, first: int, last: int, over: Literal["ps", "steps"]
) -> list[int]:
    """Bytes of each class times ps, or times steps, in the rows first <= row < last."""
    rows = series[first:last]
    weights = rows[:, 1] - rows[:, 0] if over == "ps" else rows[:, 2]
    sums = weighted_sums(rows[:, _CLASSES], weights)
    begin, end = np.searchsorted(moves[:, 0], (first, last))
    made, low = moves[begin:end], MOVE_COLUMNS.index(f"{over}_low")
    pairs = made[:, 1] * len(CLASSES) + made[:, 2]
    for pair in np.flatnonzero(np.bincount(pairs)).tolist():
        of_pair = made[pairs == pair]
        total = sum(
            unit * wide_sum(of_pair[of_pair[:, 3] == unit, low : low + 2])
            for unit in np.unique(of_pair[:, 3]).tolist()
        )
        source, target = divmod(pair, len(CLASSES))
        sums[source] -= total
        sums[target] += total
    return sums


def weighted_sums(values: Integers, weights: Integers) -> list[int]:
    """Of (n, k) values >= 0 and (n,) weights >= 0, the k sums of value * weight."""
    sums = [0] * values.shape[1]
    for at in range(0, len(values), MOST_ROWS):
        rows, heavy = _limbs(values[at : at + MOST_ROWS]), _limbs(weights[at : at + MOST_ROWS])
        for i, limb in enumerate(rows):
            for j, weight in enumerate(heavy):
                for place, total in enumerate((weight @ limb).tolist()):
                    sums[place] += int(total) << LIMB_BITS * (i + j)
    return sums


def _limbs(values: Integers) -> list[Floats]:
    """From the lowest on, as many as the largest value has."""
    top = int(values.max(initial=0)).bit_length()
    used = -(-top // LIMB_BITS)
    return [
        (values >> LIMB_BITS * i & (1 << LIMB_BITS) - 1).astype(np.float64) for i in range(used)
    ]


def wide_sum(parts: Integers) -> int:
    """Of (n, 2) integers, their lower LOW_BITS and the rest."""
    half, columns = LOW_BITS // 2, np.ascontiguousarray(parts.T)
    lower = (columns & (1 << half) - 1).sum(axis=1).tolist()
    upper = (columns >> half).sum(axis=1).tolist()
    low, rest = (few + (many << half) for few, many in zip(lower, upper, strict=True))
    return int(low + (rest << LOW_BITS))
