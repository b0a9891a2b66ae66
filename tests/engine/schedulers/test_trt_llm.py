"""TensorRT-LLM's capacity policies, against cases worked by hand."""

from typing import Any

import pytest

import kvsim
from kvsim.plumbing.units import PS_PER_MS
from kvsim.request import Request

STEP_PS = 10 * PS_PER_MS


def run(tables: Any, policy: str, requests: list[Request], **more: Any) -> Any:
    """A pool of 10 blocks of 16 tokens; every step takes 10 ms."""
    made = tables(
        memory={"kv_cache_tokens": 11 * 16},
        allocator=[{"kind": "paged", "enable_prefix_caching": False}],
        step_time={"kind": "linear", "base_us": 10_000},
        scheduler={"kind": "trt-llm", "capacity_scheduler_policy": policy},
        **more,
    )
    (found,) = kvsim.simulate(made, requests).runs
    return found


def finish_steps(found: Any) -> list[float]:
    return [ps / STEP_PS for ps in found.requests.sort_values("id").finish_ps]


# Each declares 64 and puts out 33: it holds 2 blocks at first, 4 at its end, and may need 6.
THREE = [Request(name, 0, 32, 33, max_tokens=64) for name in "abc"]


def test_no_evict_starts_requests_that_can_reach_max_tokens(tables: Any) -> None:
    found = run(tables, "guaranteed-no-evict", THREE)
    # 6 blocks declared by a, 6 by b: 12 > 10, so they run one after the other.
    assert finish_steps(found) == [33, 66, 99]
    assert found.summary["preemptions"] == 0


def test_no_evict_reserves_the_remaining_max_tokens_of_running_requests(tables: Any) -> None:
    declared = [Request(name, 0, 32, 33, max_tokens=33) for name in "abc"]
    found = run(tables, "guaranteed-no-evict", declared)
    # 4 blocks each: two run together, the third after them.
    assert finish_steps(found) == [33, 33, 66]


def test_max_utilization_admits_by_present_need_and_pauses_the_last(tables: Any) -> None:
    found = run(tables, "max-utilization", THREE, max_steps=1)
    # Room for 2 blocks and one token each: all three start, with 9 blocks after step 2. In step 18
    # a and b need their fourth block (slot 48): a takes the last one, c is paused for b, and
    # resumes with 49 tokens when they are done, after step 33.
    assert found.summary["preemptions"] == 1
    assert finish_steps(found) == [33, 33, 33 + 16]
    assert found.summary["recomputed_tokens"] == 48


def test_max_tokens_beyond_the_pool_is_refused(tables: Any) -> None:
    long = Request("r", 0, 32, 8, max_tokens=200)
    refused = run(tables, "guaranteed-no-evict", [long])
    assert refused.summary["requests"]["rejected"] == 1
    (reason,) = refused.requests.reason
    assert "15 blocks of 16 tokens, limit 10" in reason
    assert run(tables, "max-utilization", [long]).summary["requests"]["finished"] == 1


def test_output_longer_than_max_tokens_is_refused(tables: Any) -> None:
    found = run(tables, "guaranteed-no-evict", [Request("r", 0, 32, 8, max_tokens=4)])
    (reason,) = found.requests.reason
    assert "longer than the maximum it declared" in reason


@pytest.mark.parametrize("allocator", ["paged", "doubling", "max-buffer", "concatenation"])
def test_max_utilization_pauses_no_request_without_need(tables: Any, allocator: str) -> None:
    requests = [
        Request(f"{i}", i * STEP_PS // 3, 20 + 7 * i % 50, 1 + 11 * i % 60, max_tokens=60)
        for i in range(40)
    ]
    made = tables(
        model={"name": "opt-13b", "max_model_len": 256},
        memory={"kv_cache_tokens": 1024},
        allocator=[{"kind": allocator}],
        scheduler={"kind": "trt-llm"},
    )
    (found,) = kvsim.simulate(made, requests).runs
    assert found.summary["requests"]["finished"] == len(requests)
    assert found.summary["preemptions"] == 0


@pytest.mark.parametrize("policy", ["guaranteed-no-evict", "max-utilization"])
def test_no_evict_headroom_is_not_overprovisioned(tables: Any, policy: str) -> None:
    """A buffer with exactly the slots of its tokens is not overprovisioned, whatever headroom the
    policy reserves.
    """
    made = tables(
        memory={"kv_cache_tokens": 2048},
        allocator=[{"kind": "concatenation"}],
        step_time={"kind": "linear", "base_us": 10_000},
        scheduler={"kind": "trt-llm", "capacity_scheduler_policy": policy},
    )
    declared = [Request(name, 0, 100, 50, max_tokens=400) for name in "abcdef"]
    (found,) = kvsim.simulate(made, declared).runs
    shares = found.summary["memory"]["time_mean"]
    assert shares["overprovisioned"] == 0
    assert found.summary["requests"]["finished"] == 6
