"""The curve of a cache that includes a tier, compared with runs with such a tier."""

from typing import Any

import pytest

from kvsim.plumbing.units import GIB
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.cache_curve.question import CacheQuestion, cache_answer

POOL, TIER = 16_000, 40_000


def table(**more: Any) -> dict[str, Any]:
    """Conversations with long pauses, so that few run at a time."""
    return {
        "seed": 5,
        "model": {"name": "llama-3.1-8b", "max_model_len": 8192},
        "device": {"name": "h100-80gb"},
        "memory": {"kv_cache_tokens": POOL},
        "allocator": [{"kind": "paged"}],
        "scheduler": {"kind": "continuous", "max_num_batched_tokens": 8192},
        "workload": {
            "kind": "sessions",
            "num_sessions": 12,
            "max_context": "max_model_len",
            "arrivals": {"kind": "poisson", "rate_per_s": 0.5},
            "turns": {"kind": "fixed", "tokens": 6},
            "prompt": {"kind": "uniform", "min_tokens": 500, "max_tokens": 1500},
            "output": {"kind": "fixed", "tokens": 2},
            "think": {"kind": "exponential", "mean_s": 8.0},
        },
    } | more


def test_run_with_a_tier_hits_as_the_lru_curve() -> None:
    answer = cache_answer(
        Simulation(Scenario.from_table(table())),
        CacheQuestion(sizes=(POOL, TIER, 10**6), tiers=True),
    )
    for size, hits in zip((TIER, 10**6), answer.sizes[1:], strict=True):
        gib = size * answer.token_bytes / GIB
        tier = [{"kind": "vllm-offloading", "kv_offloading_size": gib}]
        simulation = Simulation(Scenario.from_table(table(tier=tier)))
        cache = simulation.run(
            simulation.scenario.allocator[0], simulation.labels[0]
        ).summary.prefix_cache
        assert cache.host_hit_tokens is not None
        found, host = (n / cache.query_tokens for n in (cache.hit_tokens, cache.host_hit_tokens))
        assert host > 0.1
        assert found == pytest.approx(hits.lru, abs=0.03)
        assert hits.tier is not None
        assert host == pytest.approx(hits.tier, abs=0.05)


def test_cache_no_larger_than_the_pool_has_no_tier_hits() -> None:
    answer = cache_answer(
        Simulation(Scenario.from_table(table())), CacheQuestion(sizes=(POOL // 2, POOL), tiers=True)
    )
    assert [each.tier for each in answer.sizes] == [0.0, 0.0]
