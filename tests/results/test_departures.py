"""Requests within a latency limit; a request without that latency meets every limit."""

import kvsim
from kvsim.request import Request
from kvsim.results.departures import Departures, within

LIMITS_S = ("queue_s", "ttft_s", "tpot_s", "e2e_s")


def done_of(outputs: list[int]) -> Departures:
    """Requests that run alone, one after the other, in steps of 1 ms with one step per prompt."""
    table = {
        "model": {"name": "opt-125m"},
        "device": {"name": "h100"},
        "allocator": {"kind": "paged"},
        "step_time": {"kind": "linear", "base_us": 1000},
    }
    requests = [Request(f"r{at}", at * 10**12, 100, tokens) for at, tokens in enumerate(outputs)]
    (run,) = kvsim.simulate(table, requests).runs
    assert run.recorder is not None
    return Departures.of(run.recorder)


def test_limit_counts_requests_with_latency_within_it() -> None:
    done = done_of([5, 5, 21])
    assert within(done, {"tpot_s": 0.001}) == 3
    assert within(done, {"tpot_s": 0.00099}) == 0
    assert within(done, {"e2e_s": 0.005}) == 2
    assert within(done, {"e2e_s": 0.005, "ttft_s": 0.00099}) == 0


def test_requests_without_a_latency_meet_its_limit() -> None:
    alone, single = done_of([0, 0]), done_of([1, 1])
    assert [within(alone, {name: 1e-9}) for name in LIMITS_S] == [2, 2, 2, 0]
    assert [within(single, {name: 1e-9}) for name in LIMITS_S] == [2, 0, 2, 0]
    assert alone.latencies().tpot_s.mean is None
