"""A peak is never reported below the mean of the same quantity."""

from hypothesis import given
from hypothesis import strategies as st

from kvsim.plumbing.units import PS_PER_S
from kvsim.workload.statistics import arrival_statistics
from kvsim.workload.traces.record import Trace, TraceRow


@given(st.lists(st.floats(0.0, 30.0), min_size=2, max_size=20))
def test_peak_arrival_rate_is_at_least_the_mean(seconds: list[float]) -> None:
    rows = [
        TraceRow(line, int(at * PS_PER_S), prompt_tokens=1, output_tokens=1)
        for line, at in enumerate(sorted(seconds), 1)
    ]
    found = arrival_statistics(Trace("a", "b", rows))
    assert found is not None
    assert found.rate_per_s is None or found.peak_10s_per_s >= found.rate_per_s
