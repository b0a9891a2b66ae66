"""Scenarios that several tests begin with."""

from typing import Any


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
