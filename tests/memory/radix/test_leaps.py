"""Radix tree with a scheduler other than SGLang's: many steps at once equal single steps.

vLLM's scheduler asks for pages one request after the other, and may start a head with only a chunk
of its prompt. So evictions of the head's hits change when it starts.
"""

from typing import Any

import pytest

import kvsim


def scenario(scheduler: dict[str, Any], page_size: int, prefix_tokens: int) -> dict[str, Any]:
    return {
        "seed": 1,
        "model": {"name": "opt-125m", "max_model_len": 600},
        "device": {"name": "l4"},
        "memory": {"kv_cache_tokens": 640},
        "allocator": [{"kind": "radix", "page_size": page_size}],
        "scheduler": {"kind": "continuous", **scheduler},
        "step_time": {"kind": "linear", "base_us": 4000.0},
        "workload": {
            "kind": "synthetic",
            "num_requests": 80,
            "arrivals": {"kind": "poisson", "rate_per_s": 20.0},
            "prompt": {"kind": "uniform", "max_tokens": 200},
            "output": {"kind": "uniform", "max_tokens": 100},
            "prefixes": [{"tokens": {"kind": "uniform", "max_tokens": prefix_tokens}, "count": 10}],
        },
    }


def summary(tables: dict[str, Any]) -> dict[str, Any]:
    (run,) = kvsim.simulate(tables).runs
    return {key: value for key, value in run.summary.items() if key != "wall_s"}


@pytest.mark.parametrize("prefix_tokens", [60, 200])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize(
    "scheduler",
    [
        {"scheduler_reserve_full_isl": False, "max_num_batched_tokens": 64},
        {"semantics": "vllm-0.11", "max_num_batched_tokens": 64},
        {"semantics": "vllm-0.11", "policy": "priority"},
    ],
    ids=["first-chunk", "first-chunk-0.11", "in-turns"],
)
def test_k_steps_evict_the_same_content_as_single_steps(
    scheduler: dict[str, Any], page_size: int, prefix_tokens: int
) -> None:
    tables = scenario(scheduler, page_size, prefix_tokens)
    assert summary(tables) == summary({**tables, "max_steps": 1})
