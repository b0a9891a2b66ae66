"""Scenarios that several tests begin with."""

from typing import Any

import pytest

from kvsim.plumbing.errors import InputError
from kvsim.results.summary import RunSummary
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation


def steady(num_requests: int) -> dict[str, Any]:
    """So many requests at a steady rate through three allocators of one small pool."""
    return {
        "model": {"name": "llama-2-7b"},
        "device": {"name": "a100-80gb"},
        "memory": {"kv_cache_tokens": 20000},
        "allocator": [{"kind": "max-buffer"}, {"kind": "doubling"}, {"kind": "paged"}],
        "workload": {
            "kind": "synthetic",
            "num_requests": num_requests,
            "arrivals": {"kind": "poisson", "rate_per_s": 8.0},
            "prompt": {"kind": "uniform", "min_tokens": 20, "max_tokens": 600},
            "output": {"kind": "geometric", "mean": 150},
            "clip_to": 2048,
        },
    }


def conversations(kv_cache_tokens: int, **workload: Any) -> dict[str, Any]:
    """Eight conversations of six turns with a paged pool of `tokens` tokens. workload: further keys
    of [workload].
    """
    return {
        "seed": 3,
        "model": {"name": "llama-3.1-8b", "max_model_len": 8192},
        "device": {"name": "h100-80gb"},
        "memory": {"kv_cache_tokens": kv_cache_tokens},
        "allocator": [{"kind": "paged"}],
        "workload": {
            "kind": "sessions",
            "num_sessions": 8,
            "max_context": "max_model_len",
            "arrivals": {"kind": "poisson", "rate_per_s": 2.0},
            "turns": {"kind": "fixed", "tokens": 6},
            "prompt": {"kind": "uniform", "min_tokens": 500, "max_tokens": 1500},
            "output": {"kind": "fixed", "tokens": 40},
            "think": {"kind": "exponential", "mean_s": 8.0},
            **workload,
        },
    }


def run(table: dict[str, Any]) -> RunSummary:
    """The summary of a scenario with one allocator."""
    simulation = Simulation(Scenario.from_table(table))
    (options,), (label,) = simulation.scenario.allocator, simulation.labels
    return simulation.run(options, label).summary


# Conversations that come back to a pool too small for them, so that what lies behind it is used.
SESSIONS: dict[str, Any] = {
    "model": {"name": "llama-3.1-8b", "max_model_len": 8192},
    "device": {"name": "h100-80gb"},
    "memory": {"kv_cache_tokens": 12_000},
    "allocator": "paged",
    "workload": {
        "kind": "sessions",
        "num_sessions": 6,
        "max_context": "max_model_len",
        "arrivals": {"kind": "poisson", "rate_per_s": 2.0},
        "turns": {"kind": "fixed", "tokens": 4},
        "prompt": {"kind": "uniform", "min_tokens": 500, "max_tokens": 1500},
        "output": {"kind": "fixed", "tokens": 20},
        "think": {"kind": "exponential", "mean_s": 3.0},
    },
}
HOST_AND_FILES: dict[str, Any] = {
    **SESSIONS,
    "tier": [{"kind": "vllm-offloading", "kv_offloading_size": 0.5}, {"kind": "file-system"}],
}


def refuses(table: dict[str, Any], where: str) -> None:
    """The scenario is refused in one line that names this key, with a remedy."""
    with pytest.raises(InputError) as refused:
        run(table)
    assert refused.value.where == where
    assert "\n" not in str(refused.value)
    assert refused.value.remedy
