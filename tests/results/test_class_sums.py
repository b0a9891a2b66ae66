"""Sums of large integers by limbs equal Python's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.results import class_sums
from kvsim.results.class_sums import moved_sums, weighted_sums
from kvsim.results.series import LOW_BITS, MOVE_COLUMNS

LARGEST = (1 << 63) - 1
ROW = st.tuples(st.integers(0, LARGEST), st.integers(0, LARGEST), st.integers(0, LARGEST))


@given(st.lists(ROW, max_size=5))
def test_weighted_sums_equal_plain_python(rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    found = weighted_sums(table[:, :2], (table[:, 2], table[:, 1]))
    assert found == [[sum(row[at] * row[by] for row in rows) for at in (0, 1)] for by in (2, 1)]


def test_weighted_sums_in_chunks_of_rows_are_exact(monkeypatch) -> None:
    monkeypatch.setattr(class_sums, "MOST_ROWS", 3)
    values = np.full((10, 1), LARGEST, dtype=np.int64)
    assert weighted_sums(values, [values[:, 0]]) == [[10 * LARGEST**2]]


WIDE = st.integers(-(1 << 124), 1 << 124)


@given(st.lists(st.tuples(st.integers(0, 2), WIDE, WIDE), max_size=9), st.integers(1, 9))
def test_moves_are_summed_by_kind(made: list[tuple[int, int, int]], at_once: int) -> None:
    rows = [
        (row, kind, *(part for value in both for part in divmod(value, 1 << LOW_BITS)[::-1]))
        for row, (kind, *both) in enumerate(made)
    ]
    table = np.array(rows, dtype=np.int64).reshape(-1, len(MOVE_COLUMNS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(class_sums, "MOST_MOVES", at_once)
        found = moved_sums(table, 3)
    assert found == tuple(
        [sum(each[place] for each in made if each[0] == kind) for kind in range(3)]
        for place in (1, 2)
    )
