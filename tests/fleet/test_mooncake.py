"""Replicas on Mooncake's conversation trace, against ai-dynamo-runtime 1.6.1's offline replay.

Mocker engines with their default timing and 4 replicas. Round robin with memory for all is exact: a
15-line script gives the same reuse to six digits. Dynamo's KV router draws ties: three of its runs
differ by 0.003 in reuse and 0.5 % in TTFT.
"""

from typing import Any

import pytest
from support.public_traces import public_trace

from kvsim.simulation import simulate


def replayed(router: str | dict[str, Any], blocks: int, replicas: int = 4) -> tuple[float, float]:
    """The share of prompt tokens found in prefix caches, and the mean TTFT in ms."""
    public_trace("conversation_trace.jsonl")
    result = simulate(
        {
            "model": {"name": "llama-3.1-8b"},
            "device": {"name": "h200"},
            "memory": {"num_gpu_blocks": blocks},
            "allocator": [{"kind": "paged", "block_size": 512}],
            "scheduler": {
                "kind": "continuous",
                "max_num_seqs": 256,
                "max_num_batched_tokens": 8192,
            },
            "step_time": {"kind": "dynamo-mocker"},
            "workload": {"kind": "trace", "name": "mooncake-conversation"},
            "fleet": {"replicas": replicas, "router": router, "regret": False},
        }
    )
    runs = [run.recorder for run in result.runs if run.recorder is not None]
    prompts = sum(int(each.finished.column("prompt_tokens").sum()) for each in runs)
    (fleet,) = result.fleets
    assert fleet.ttft_s.mean is not None
    return fleet.prefix_cache.hit_tokens / prompts, fleet.ttft_s.mean * 1e3


def test_round_robin_over_four_replicas_has_the_recorded_reuse() -> None:
    reuse, ttft_ms = replayed("round-robin", 400_000)
    assert reuse == pytest.approx(0.195509, abs=5e-7)
    assert ttft_ms == pytest.approx(446.54, rel=0.10)


@pytest.mark.parametrize(("replicas", "share"), [(1, 0.373380), (2, 0.275877), (8, 0.138957)])
def test_round_robin_over_more_replicas_reuses_less(replicas: int, share: float) -> None:
    """llm-d-planner#16: what scaling out costs in hits, to six digits."""
    assert replayed("round-robin", 400_000, replicas)[0] == pytest.approx(share, abs=5e-7)


@pytest.mark.parametrize(
    ("setting", "reuse", "ttft_ms"),
    [
        ({"overlap_score_credit": 0.5}, 0.121, None),
        ({"prefill_load_scale": 2.0}, 0.147, 435),
        ({"prefill_load_scale": 8.0}, 0.161, 405),
    ],
)
def test_router_credit_and_scale_change_reuse_as_in_dynamos_replay(
    setting: dict[str, float], reuse: float, ttft_ms: float | None
) -> None:
    """dynamo#392, #3581: which credit and which scale. The draws of ties move reuse by 0.003."""
    found, mean_ms = replayed({"kind": "dynamo-kv", **setting}, 2048)
    assert found == pytest.approx(reuse, abs=0.01)
    assert ttft_ms is None or mean_ms == pytest.approx(ttft_ms, rel=0.10)


def test_round_robin_evictions_equal_dynamos_replay() -> None:
    reuse, ttft_ms = replayed("round-robin", 8192)
    assert reuse == pytest.approx(0.1508, abs=0.05)
    assert ttft_ms == pytest.approx(470.57, rel=0.10)


@pytest.mark.parametrize(
    ("blocks", "reuse", "ttft_ms"), [(2048, 0.1368, 461.2), (8192, 0.2525, 387.5)]
)
def test_dynamo_router_hit_ratio_equals_dynamos_own_replay(
    blocks: int, reuse: float, ttft_ms: float
) -> None:
    found, mean_ms = replayed("dynamo-kv", blocks)
    assert found == pytest.approx(reuse, abs=0.05)
    assert mean_ms == pytest.approx(ttft_ms, rel=0.10)


def test_cache_events_a_minute_late_cost_as_many_hits_as_in_dynamo() -> None:
    """kv_event_lag_ms = 60,000: from 0.1368 down to 0.1210."""
    found, mean_ms = replayed({"kind": "dynamo-kv", "kv_event_lag_ms": 60_000}, 2048)
    assert found == pytest.approx(0.1210, abs=0.01)
    assert mean_ms == pytest.approx(470.3, rel=0.10)
