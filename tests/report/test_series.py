import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from kvsim.report.series import bucketed


def series(rows):
    """A memory series from rows (duration_ps, first value, last value), one after the other."""
    ends = np.cumsum([row[0] for row in rows])
    return pd.DataFrame(
        {
            "start_ps": ends - [row[0] for row in rows],
            "end_ps": ends,
            "a_bytes": [row[1] for row in rows],
            "a_end_bytes": [row[2] for row in rows],
        }
    )


def thin(frame, buckets):
    return bucketed(frame, ["a_bytes"], ["a_end_bytes"], buckets)


def test_thinned_series_equals_a_hand_count():
    thinned = thin(series([(4 * 10**12, 0, 80)]), 4)
    assert thinned.edges_s.tolist() == [0, 1, 2, 3, 4]
    assert thinned.mean[:, 0].tolist() == [10, 30, 50, 70]
    assert thinned.low[:, 0].tolist() == [0, 20, 40, 60]
    assert thinned.high[:, 0].tolist() == [20, 40, 60, 80]


def test_a_spike_narrower_than_a_bucket_is_kept():
    thinned = thin(series([(10**12, 1, 1), (10**6, 1000, 1000), (10**12, 1, 1)]), 3)
    assert thinned.high.max() == 1000
    assert thinned.mean.max() < 1.01
    assert thinned.low.min() == 1


def test_unrecorded_time_is_drawn_as_zero():
    frame = pd.DataFrame(
        {"start_ps": [0, 3 * 10**12], "end_ps": [10**12, 4 * 10**12],
         "a_bytes": [5, 7], "a_end_bytes": [5, 7]}
    )  # fmt: skip
    assert thin(frame, 4).mean[:, 0].tolist() == [5, 0, 0, 7]


def test_series_without_rows_or_duration_is_none():
    assert thin(series([]), 10) is None
    assert thin(series([(0, 1, 1)]), 10) is None


ROWS = st.lists(
    st.tuples(st.integers(0, 10**13), st.integers(0, 10**11), st.integers(0, 10**11)),
    min_size=1,
    max_size=40,
).filter(lambda rows: sum(row[0] for row in rows) > 1000)


@given(ROWS, st.integers(1, 50))
def test_thinned_series_keeps_the_area_and_orders_low_mean_high(rows, buckets):
    thinned = thin(series(rows), buckets)
    area = sum(duration * (first + last) / 2 for duration, first, last in rows) / 1e12
    drawn = (thinned.mean[:, 0] * np.diff(thinned.edges_s)).sum()
    most = max(max(row[1:]) for row in rows)
    assert abs(drawn - area) <= 1e-6 * (most * thinned.edges_s[-1]) + 1e-9
    assert (thinned.low <= thinned.mean).all()
    assert (thinned.mean <= thinned.high).all()


@given(ROWS, st.integers(1, 50))
def test_thinned_series_keeps_the_maximum(rows, buckets):
    rows = [(duration + 10**9, first, last) for duration, first, last in rows]
    thinned = thin(series(rows), buckets)
    assert thinned.high.max() == max(max(row[1:]) for row in rows)
    assert thinned.low.min() == min(min(row[1:]) for row in rows)
