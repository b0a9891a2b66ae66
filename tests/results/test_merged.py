"""Recorders of several replicas as one."""

from kvsim.memory.ledger import IDLE, Usage
from kvsim.results.merged import merged
from kvsim.results.recorder import Recorder

CAPACITY = 80 << 30
SECOND_PS = 10**12


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
