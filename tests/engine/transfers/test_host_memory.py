"""A host memory tier on prefill replicas: its hits, and k steps equal to single steps."""

from typing import Any

import pytest

import kvsim

HOST = {"kind": "vllm-offloading", "kv_offloading_size": 8.0}
FILES = {"kind": "file-system", "read_gb_per_s": 4.0}


def tables(tier: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Sixteen conversations on two prefill replicas; each pool holds four of them."""
    found: dict[str, Any] = {
        "seed": 3,
        "model": {"name": "llama-3.1-8b", "max_model_len": 8192},
        "device": {"name": "h100-80gb"},
        "memory": {"kv_cache_tokens": 24_000},
        "allocator": [{"kind": "paged"}],
        "scheduler": {"kind": "continuous", "max_num_batched_tokens": 4096},
        "tier": tier,
        "disaggregation": {"prefill": {"replicas": 2}},
        "workload": {
            "kind": "sessions",
            "num_sessions": 16,
            "max_context": "max_model_len",
            "arrivals": {"kind": "poisson", "rate_per_s": 2.0},
            "turns": {"kind": "fixed", "tokens": 6},
            "prompt": {"kind": "uniform", "min_tokens": 500, "max_tokens": 1500},
            "output": {"kind": "fixed", "tokens": 40},
            "think": {"kind": "exponential", "mean_s": 8.0},
        },
    }
    return found | more


SETS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "waits": ([HOST], {}),
    "a slow link": ([HOST | {"store_gb_per_s": 0.5}], {}),
    "at once, two steps in flight": (
        [HOST | {"sync_load_budget_bytes": 1 << 30}],
        {"scheduler": {"kind": "continuous", "async_scheduling": True}},
    ),
    "files": ([HOST | {"kv_offloading_size": 0.5}, FILES], {}),
    "several tables": (
        [HOST],
        {
            "model": {"name": "gpt-oss-20b", "max_model_len": 8192},
            "memory": {"kv_cache_bytes": 600_000_000},
        },
    ),
}


@pytest.mark.parametrize("name", SETS)
def test_k_steps_equal_single_steps_with_host_memory_on_prefill_replicas(name: str) -> None:
    tier, more = SETS[name]
    table = tables(tier, **more)
    together, singly = kvsim.simulate(table), kvsim.simulate(table | {"max_steps": 1})
    for ours, theirs in zip(together.runs, singly.runs, strict=True):
        assert ours.summary.simulated() == theirs.summary.simulated()
    decode, prefill = together.runs
    offloading = prefill.summary.offloading
    assert decode.summary.offloading is None
    assert offloading is not None
    assert offloading.tiers[0].stored_bytes > 0
    assert prefill.summary.prefix_cache.host_hit_tokens
    assert decode.summary.requests.finished == 96


def test_prefill_replica_loads_prompts_from_host_memory() -> None:
    without, behind = (kvsim.simulate(tables(tier)) for tier in ([], [HOST]))
    (alone, _), (decode, prefill) = without.runs, behind.runs
    assert decode.summary.ttft_s.mean is not None
    assert alone.summary.ttft_s.mean is not None
    assert decode.summary.ttft_s.mean < alone.summary.ttft_s.mean
    offloading = prefill.summary.offloading
    assert offloading is not None
    # Two replicas of 8 GiB, which is a whole number of blocks of 2 MiB.
    assert offloading.tiers[0].capacity_bytes == 2 * 8 * 2**30
    links = behind.runs[0].table("links")
    assert links is not None
    assert set(links["link"]) == {"prefill to decode", "device to host", "host to device"}
    loaded = links.loc[links["link"] == "host to device", "num_bytes"].sum()
    assert loaded == offloading.tiers[0].loaded_bytes
