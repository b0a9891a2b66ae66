"""A scenario of conversations that fleets are tested on, and engines that serve it."""

from typing import Any

TABLE: dict[str, Any] = {
    "model": {"name": "llama-2-7b"},
    "device": {"name": "a100-80gb"},
    "memory": {"kv_cache_tokens": 12_000},
    "allocator": {"kind": "paged"},
    "scheduler": {"kind": "continuous", "max_num_seqs": 32, "max_num_batched_tokens": 1024},
    "step_time": {
        "kind": "linear",
        "base_us": 9000,
        "prefill_token_us": 40,
        "decode_seq_us": 60,
        "context_token_ns": 2,
    },
    "workload": {
        "kind": "sessions",
        "num_sessions": 60,
        "arrivals": {"kind": "poisson", "rate_per_s": 3},
        "turns": {"kind": "uniform", "min_tokens": 1, "max_tokens": 5},
        "prompt": {"kind": "uniform", "min_tokens": 20, "max_tokens": 500},
        "output": {"kind": "uniform", "min_tokens": 2, "max_tokens": 200},
        "think": {"kind": "fixed", "seconds": 0},
    },
}

ENGINES = [
    {},
    {"scheduler": {"kind": "continuous", "async_scheduling": True, "max_num_seqs": 32}},
    {"memory": {"kv_cache_tokens": 60_000}},
    {"allocator": {"kind": "max-buffer"}, "memory": {"kv_cache_tokens": 60_000}},
    {"scheduler": {"kind": "sglang"}, "allocator": {"kind": "radix"}},
]
