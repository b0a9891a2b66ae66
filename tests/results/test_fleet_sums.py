"""A fleet's numbers are the sums of its replicas', also with tiers and disaggregation."""

from typing import Any

import pytest
from support.fuzzing.laws import check_result

import kvsim

CHATS = {
    "kind": "sessions",
    "num_sessions": 10,
    "arrivals": {"kind": "poisson", "rate_per_s": 4.0},
    "turns": {"kind": "fixed", "tokens": 4},
    "prompt": {"kind": "fixed", "tokens": 60},
    "output": {"kind": "fixed", "tokens": 20},
    "think": {"kind": "fixed", "seconds": 0.5},
}


@pytest.mark.parametrize("apart", [False, True])
def test_fleet_numbers_are_sums_of_its_replicas(tables: Any, apart: bool) -> None:
    made = tables(
        allocator=[{"kind": "paged"}],
        memory={"kv_cache_tokens": 1024},
        model={"name": "opt-125m", "max_model_len": 1024},
        workload=CHATS,
        tier=[{"kind": "vllm-offloading", "kv_offloading_size": 0.5}],
        fleet={"replicas": 2},
        **({"disaggregation": {"decode": {"replicas": 2}}} if apart else {}),
    )
    result = kvsim.simulate(made)
    check_result(result)
    (fleet,) = result.fleets
    assert fleet.requests.finished == 40
    assert apart or fleet.prefix_cache.host_hit_tokens > 0
    for run in result.runs:
        assert sum(run.summary["memory"]["step_mean"].values()) == pytest.approx(1, abs=1e-12)
