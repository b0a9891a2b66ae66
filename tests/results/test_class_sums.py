"""Sums by limbs are the sums."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvsim.results import class_sums
from kvsim.results.class_sums import weighted_sums, wide_sum
from kvsim.results.series import LOW_BITS

LARGEST = (1 << 63) - 1
ROW = st.tuples(st.integers(0, LARGEST), st.integers(0, LARGEST), st.integers(0, LARGEST))


@given(st.lists(ROW, max_size=5))
def test_values_times_weights(rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    found = weighted_sums(table[:, :2], table[:, 2])
    assert found == [sum(row[at] * row[2] for row in rows) for at in (0, 1)]


def test_many_rows_are_summed_in_parts(monkeypatch) -> None:
    monkeypatch.setattr(class_sums, "MOST_ROWS", 3)
    values = np.full((10, 1), LARGEST, dtype=np.int64)
    assert weighted_sums(values, values[:, 0]) == [10 * LARGEST**2]


@given(st.lists(st.integers(-(1 << 124), 1 << 124), max_size=5))
def test_integers_in_two_parts(values: list[int]) -> None:
    parts = [(value & (1 << LOW_BITS) - 1, value >> LOW_BITS) for value in values]
    assert wide_sum(np.array(parts, dtype=np.int64).reshape(-1, 2)) == sum(values)
