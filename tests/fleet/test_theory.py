"""Fleets of servers that take one request at a time, against queueing formulas."""

from math import factorial
from typing import Any

import pytest

from kvsim.simulation import simulate

STEP_S, MEAN_STEPS, REPLICAS, LOAD = 0.001, 50, 4, 0.8
NUM = 16_000


def mean_wait_s(router: str) -> float:
    """Mean queueing time of requests with a geometric service time, which is nearly exponential."""
    service_s = STEP_S * MEAN_STEPS
    table: dict[str, Any] = {
        "model": {"name": "llama-2-7b"},
        "device": {"name": "a100-80gb"},
        "memory": {"kv_cache_tokens": 8192},
        "allocator": [{"kind": "paged"}],
        "scheduler": {"kind": "continuous", "max_num_seqs": 1},
        "step_time": {"kind": "linear", "base_us": STEP_S * 1e6},
        "workload": {
            "kind": "synthetic",
            "num_requests": NUM,
            "arrivals": {"kind": "poisson", "rate_per_s": REPLICAS * LOAD / service_s},
            "prompt": {"kind": "fixed", "tokens": 8},
            "output": {"kind": "geometric", "mean": MEAN_STEPS},
        },
        "fleet": {"replicas": REPLICAS, "router": {"kind": router}},
    }
    queue = simulate(table).fleets[0].queue_s
    assert queue is not None
    assert queue.mean is not None
    return queue.mean


def erlang_c_wait_s(servers: int) -> float:
    """Mean wait of M/M/c at the same load (Erlang C)."""
    service_s, offered = STEP_S * MEAN_STEPS, servers * LOAD
    tail = offered**servers / factorial(servers) / (1 - LOAD)
    waits = tail / (sum(offered**k / factorial(k) for k in range(servers)) + tail)
    return waits * service_s / (servers * (1 - LOAD))


def test_random_router_waits_equal_independent_queues() -> None:
    """Poisson arrivals dealt out at random are Poisson at each server: M/M/1."""
    assert mean_wait_s("random") == pytest.approx(erlang_c_wait_s(1), rel=0.15)


def test_shortest_queue_routing_waits_between_one_shared_and_separate_queues() -> None:
    """No router waits less than one queue before all servers (M/M/c), and the shortest queue not
    much more: below the round robin of the same requests, and half of M/M/1 at most.
    """
    shortest = mean_wait_s("least-requests")
    assert shortest > 0.9 * erlang_c_wait_s(REPLICAS)
    assert shortest < mean_wait_s("round-robin") < erlang_c_wait_s(1)
    assert shortest < erlang_c_wait_s(1) / 2
