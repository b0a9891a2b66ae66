"""A service of short chats on a small model, for what is run some dozens of times in a test."""

from typing import Any

STEP_TIME = {
    "kind": "linear",
    "base_us": 8000,
    "prefill_token_us": 40,
    "decode_seq_us": 60,
    "context_token_ns": 100,
}


def chats(tables: Any, **parts: Any) -> dict[str, Any]:
    """Some eight requests a second; a pool of 6,000 tokens and 256 sequences are plenty."""
    return tables(
        **{
            "model": {"name": "opt-125m", "max_model_len": 1024},
            "allocator": [{"kind": "paged"}],
            "memory": {"kv_cache_tokens": 6000},
            "step_time": STEP_TIME,
            "workload": {
                "kind": "synthetic",
                "num_requests": 120,
                "arrivals": {"kind": "poisson", "rate_per_s": 8.0},
                "prompt": {"kind": "uniform", "min_tokens": 20, "max_tokens": 300},
                "output": {"kind": "geometric", "mean": 80},
                "clip_to": 1024,
            },
            **parts,
        }
    )
