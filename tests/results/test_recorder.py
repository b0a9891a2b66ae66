"""Time before the first arrival is not recorded."""

import pytest

from kvsim.memory.ledger import Usage
from kvsim.results.recorder import Recorder

CAPACITY = 100


def idle(recorder: Recorder, start_ps: int, lasts_ps: int) -> None:
    usage = Usage(idle=CAPACITY)
    recorder.interval(start_ps, 0, lasts_ps, 0, usage, None, 0, 0)


@pytest.mark.parametrize(("start_ps", "booked_ps"), [(0, 30), (50, 10), (55, 5), (60, 0)])
def test_recorder_starts_at_the_first_arrival(start_ps: int, booked_ps: int) -> None:
    """The first request arrives at 50; the server is idle until 60, or until 80."""
    recorder = Recorder(CAPACITY)
    recorder.first_arrival_ps = 50
    idle(recorder, start_ps, (80 if start_ps == 0 else 60) - start_ps)
    assert recorder.total_ps == booked_ps
    assert sum(recorder.time_sum) == booked_ps * CAPACITY


def test_interval_before_the_first_arrival_adds_no_time() -> None:
    recorder = Recorder(CAPACITY)
    recorder.first_arrival_ps = 50
    idle(recorder, 0, 50)
    assert recorder.total_ps == 0
