"""Bytes of each ledger class summed over time and over steps, from a recorder's rows.

The sums are exact. Bytes times picoseconds exceed 64 bits, so factors and terms are cut into limbs
with products and sums that a float64 holds.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.memory.ledger import CLASSES
from kvsim.results.series import LOW_BITS, MOVE_COLUMNS, SERIES_COLUMNS

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Moved = tuple[int, int, int]  # from this class to this one, units of so many bytes

_FIRST_CLASS = SERIES_COLUMNS.index(f"{CLASSES[0]}_bytes")
_CLASSES = slice(_FIRST_CLASS, _FIRST_CLASS + len(CLASSES))
_FIRST_SUM = MOVE_COLUMNS.index("ps_low")
# Products of limbs, and halves of terms: the sum of so many of them is a whole number that a
# float64 holds.
LIMB_BITS, MOST_ROWS = 21, 1 << 11
_HALF_BITS, MOST_MOVES = LOW_BITS // 2, 1 << 22


class ClassSums(NamedTuple):
    """Bytes of each ledger class times ps, and times steps."""

    ps: list[int]
    steps: list[int]


def class_sums(series: Integers, moves: Integers, kinds: Sequence[Moved], before: int) -> ClassSums:
    """The sums over all rows before number `before`. kinds: the meaning of each move's kind
    number.
    """
    rows = series[:before]
    sums = ClassSums(*weighted_sums(rows[:, _CLASSES], (rows[:, 1] - rows[:, 0], rows[:, 2])))
    made = moves[: np.searchsorted(moves[:, 0], before)]
    for of_class, of_kind in zip(sums, moved_sums(made, len(kinds)), strict=True):
        for (source, target, unit_bytes), units in zip(kinds, of_kind, strict=True):
            of_class[source] -= units * unit_bytes
            of_class[target] += units * unit_bytes
    return sums


def weighted_sums(values: Integers, weights: Sequence[Integers]) -> list[list[int]]:
    """Sums of (n, k) values >= 0 with (n,) weights >= 0: for each of the k columns, the sum of
    value * weight, exactly.
    """
    sums = [[0] * values.shape[1] for _ in weights]
    for at in range(0, len(values), MOST_ROWS):
        part = slice(at, at + MOST_ROWS)
        rows = _limbs(values[part])
        for found, column in zip(sums, weights, strict=True):
            for j, weight in enumerate(_limbs(column[part])):
                for i, limb in enumerate(rows):
                    for place, total in enumerate((weight @ limb).tolist()):
                        found[place] += int(total) << LIMB_BITS * (i + j)
    return sums


def _limbs(values: Integers) -> list[Floats]:
    """The values split into limbs, lowest first, as many as the largest value needs."""
    top = int(values.max(initial=0)).bit_length()
    used = -(-top // LIMB_BITS)
    return [
        (values >> LIMB_BITS * i & (1 << LIMB_BITS) - 1).astype(np.float64) for i in range(used)
    ]


def moved_sums(moves: Integers, num_kinds: int) -> tuple[list[int], list[int]]:
    """Sums over (n, MOVE_COLUMNS) moves: for each kind, its units times ps, and times steps."""
    sums = [0] * num_kinds, [0] * num_kinds
    for at in range(0, len(moves), MOST_MOVES):
        part = moves[at : at + MOST_MOVES]
        for place, found in enumerate(sums):
            low, high = part[:, _FIRST_SUM + 2 * place : _FIRST_SUM + 2 * place + 2].T
            for shift, half in (
                (0, low & (1 << _HALF_BITS) - 1),
                (_HALF_BITS, low >> _HALF_BITS),
                (LOW_BITS, high & (1 << _HALF_BITS) - 1),
                (LOW_BITS + _HALF_BITS, high >> _HALF_BITS),
            ):
                totals = np.bincount(part[:, 1], half, num_kinds).tolist()
                for kind, total in enumerate(totals):
                    found[kind] += int(total) << shift
    return sums
