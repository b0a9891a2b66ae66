"""The merged recorder of several replicas equals the sum of its parts."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.memory.ledger import CLASSES, IDLE, Course, Usage
from kvsim.results.measurement import WindowOptions, measure_window
from kvsim.results.merged import merged
from kvsim.results.recorder import Recorder
from kvsim.results.series import SERIES_COLUMNS
from kvsim.results.summary import NoWindow

CAPACITY = 80 << 30
SECOND_PS = 10**12
UNIT = 1 << 16
RUNNING, WAITING = (SERIES_COLUMNS.index(name) for name in ("num_running", "num_waiting"))


def recorder(start_ps: int, seconds: int) -> Recorder:
    found = Recorder(CAPACITY)
    found.first_arrival_ps = start_ps
    usage = Usage(used=CAPACITY // 4, idle=CAPACITY - CAPACITY // 4)
    for at in range(seconds):
        found.interval(start_ps + at * SECOND_PS, 1, SECOND_PS, 0, usage, None, 1 + at, 0)
    return found


def test_bytes_times_time_of_large_pools_are_exact() -> None:
    """The second replica is empty for 90 s: its bytes times picoseconds exceed 64 bits."""
    both = merged([recorder(0, 100), recorder(0, 10)])
    assert both.total_ps == 100 * SECOND_PS
    assert both.time_sum[0] == CAPACITY // 4 * 110 * SECOND_PS
    assert sum(both.time_sum) == 2 * CAPACITY * 100 * SECOND_PS
    assert both.time_sum[IDLE] == sum(both.time_sum) - both.time_sum[0]
    # Before each second's row: exactly what was booked by then.
    assert [both.time_sum_before(mark)[0] for mark in (0, 5, 50)] == [
        CAPACITY // 4 * booked * SECOND_PS for booked in (0, 10, 60)
    ]
    assert both.pool_sum_before(50) == 2 * CAPACITY * 50 * SECOND_PS


class Stretch:
    """Equal steps: number, duration, used bytes, moved bytes, (running, waiting) sequences."""

    def __init__(self, steps: int, ps: int, used: int, moved: int, counts: tuple[int, int]) -> None:
        self.steps, self.ps, self.used, self.counts = steps, ps, used, counts
        self.moved = moved if steps else 0


stretches = st.builds(
    Stretch,
    st.integers(0, 5),
    st.integers(1, 9),
    st.integers(0, 20),
    st.integers(0, 3),
    st.tuples(st.integers(0, 4), st.integers(0, 3)),
)
replicas = st.lists(
    st.tuples(st.integers(0, 30), st.lists(stretches, max_size=6)), min_size=2, max_size=4
)


def booked(start_ps: int, course: list[Stretch], at_once: bool) -> Recorder:
    """The recorder of a replica, which received k steps at once or one by one."""
    found = Recorder(60 * UNIT)
    found.first_arrival_ps = start_ps
    now_ps = start_ps
    for stretch in (*course, Stretch(1, 2, 3, 0, (1, 0))) if course else ():
        runs = [(0, stretch.steps)] if at_once else [(at, 1) for at in range(stretch.steps)]
        if not stretch.steps:
            runs = [(0, 0)]
        for done, steps in runs:
            used = stretch.used + done * stretch.moved
            usage = Usage(used=used * UNIT, idle=(60 - used) * UNIT)
            moves = ((IDLE, 0, UNIT, stretch.moved, 0, 0, 0),)
            more = stretch.moved * max(0, steps - 1) * UNIT
            moving = Course(moves=moves, used_rise=more, allocated_rise=more)
            running, waiting = stretch.counts
            part = ((0, stretch.used),)
            found.interval(
                now_ps, steps, stretch.ps, 0, usage, moving, running, waiting, stretch.used, part
            )
            now_ps += max(1, steps) * stretch.ps
    return found


def sums(parts: list[Any]) -> list[int]:
    return [sum(each) for each in zip(*parts, strict=True)]


@settings(max_examples=60, deadline=None)
@given(replicas)
def test_merged_recorder_equals_the_sum_of_its_parts(
    drawn: list[tuple[int, list[Stretch]]],
) -> None:
    parts = [booked(start_ps, course, at_once=True) for start_ps, course in drawn]
    both = merged(parts)
    for name in ("steps", "running_sum", "waiting_sum", "saved_sum", "capacity_bytes"):
        assert getattr(both, name) == sum(getattr(each, name) for each in parts), name
    assert both.step_sum == sums([each.step_sum for each in parts])
    assert both.pool_steps == sum(both.step_sum)
    assert both.part_sums == sums([each.part_sums for each in parts])
    assert both.peaks == tuple(max(each.peaks[at] for each in parts) for at in (0, 1))
    if not both.num_rows:
        assert both.total_ps == 0 == sum(both.time_sum)
        return
    held = sums([each.time_sum for each in parts])
    assert both.time_sum[:IDLE] == held[:IDLE]
    assert sum(both.time_sum) == both.capacity_bytes * both.total_ps
    rows = both.rows()
    assert (rows[1:, 0] == rows[:-1, 1]).all()
    assert rows[:, 2].sum() == both.steps
    assert (rows[:, 5:] >= 0).all()
    for row in rows:
        mine = [own for each in parts for own in each.rows() if own[0] <= row[0] < own[1]]
        for column in (RUNNING, WAITING):
            assert row[column] == sum(own[column] for own in mine)
        for column in (5, 5 + len(CLASSES)):
            assert row[column : column + len(CLASSES)].sum() == both.capacity_bytes


@settings(max_examples=60, deadline=None)
@given(replicas, st.integers(0, 40), st.integers(1, 60))
def test_merged_summary_is_equal_for_runs_of_steps_and_single_steps(
    drawn: list[tuple[int, list[Stretch]]], from_ps: int, span_ps: int
) -> None:
    pairs = [
        merged([booked(start_ps, course, at_once=at_once) for start_ps, course in drawn])
        for at_once in (True, False)
    ]
    for name in ("peaks", "time_sum", "step_sum", "pool_steps", "part_sums", "steps", "saved_sum"):
        assert getattr(pairs[0], name) == getattr(pairs[1], name), name
    options = WindowOptions(from_s=from_ps / 1e12, to_s=(from_ps + span_ps) / 1e12)
    once, single = (measure_window(each, options) for each in pairs)
    assert once.as_json() == single.as_json()
    if not isinstance(once, NoWindow):
        assert abs(sum(once.memory.time_mean.values()) - 1) < 1e-12
        assert np.min(list(once.memory.time_mean.values())) >= 0
