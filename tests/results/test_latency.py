"""Each latency has one definition: equal to a hand computation, in the summary and on the page."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim import simulate
from kvsim.report.latency import e2e_s, queue_s, tpot_s, ttft_s
from kvsim.results import latency

SCENARIO = {
    "model": {"name": "llama-3.1-8b"},
    "device": {"name": "a100-80gb"},
    "memory": {"kv_cache_tokens": 4000},
    "allocator": [{"kind": "paged"}],
    "workload": {
        "kind": "synthetic",
        "num_requests": 60,
        "arrivals": {"kind": "poisson", "rate_per_s": 30.0},
        "prompt": {"kind": "uniform", "min_tokens": 20, "max_tokens": 300},
        "output": {"kind": "uniform", "min_tokens": 1, "max_tokens": 40},
    },
}


def test_latencies_equal_a_hand_count():
    arrival, scheduled = np.array([0, 10]), np.array([1, 10])
    first, last, outputs = np.array([4, 11]), np.array([10, 11]), np.array([4, 1])
    assert latency.queue(arrival, scheduled).tolist() == [1, 0]
    assert latency.ttft(arrival, first).tolist() == [4, 1]
    assert latency.tpot(first, last, outputs).tolist() == [2.0]  # one token has no gap after it
    assert latency.e2e(arrival, last).tolist() == [10, 1]
    assert latency.spread(np.array([1.0, 3.0]), ["p50"]) == {"mean": 2.0, "p50": 2.0}


@pytest.mark.parametrize(
    ("name", "shown"),
    [("queue_s", queue_s), ("ttft_s", ttft_s), ("tpot_s", tpot_s), ("e2e_s", e2e_s)],
)
def test_latencies_on_the_page_equal_those_of_the_summary(name, shown):
    run = simulate(SCENARIO).runs[0]
    assert latency.spread(np.sort(shown(run.requests))) == pytest.approx(
        run.summary[name], rel=1e-12
    )


@settings(deadline=None)
@given(
    values=st.lists(st.integers(0, 1 << 52), min_size=1, max_size=40),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=4),
    scale=st.sampled_from([1, 1e-12]),
)
def test_quantiles_are_numpys_to_the_last_bit(
    values: list[int], shares: list[float], scale: float
) -> None:
    array = np.array(values) * scale
    assert latency.quantiles_of(array, shares) == np.quantile(array, shares).tolist()
