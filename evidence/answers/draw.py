"""Random scenarios by seed: servers configured well or badly, with loads that fit them or not."""

from typing import Any

import numpy as np

Table = dict[str, Any]
MODELS = ("llama-3.1-8b", "qwen3-8b", "llama-2-7b", "mistral-7b", "qwen3-14b")
DEVICES = ("a100-80gb", "h100", "l40s", "h200")


def drawn(seed: int, requests: int) -> Table:
    """One random scenario. requests: number of requests in its stream, approximate for
    conversations.

    All arrivals have a rate. In a closed loop the run would grow with the number of users tried, up
    to 10,000 requests.
    """
    rng = np.random.default_rng(seed)
    model = str(rng.choice(MODELS))
    longest = 4096
    scheduler: Table = {
        "kind": "continuous",
        "max_num_seqs": int(2 ** rng.integers(2, 9)),
        "max_num_batched_tokens": int(2 ** rng.integers(9, 14)),
    }
    caching = bool(rng.random() < 0.5)
    allocator: Table = {
        "kind": "paged",
        "block_size": int(rng.choice([16, 16, 16, 64, 256])),
        "enable_prefix_caching": caching,
    }
    return {
        "seed": 0,
        "model": {"name": model, "max_model_len": longest},
        "device": {"name": str(rng.choice(DEVICES))},
        "memory": {"kv_cache_tokens": int(rng.integers(6, 60)) * 1024},
        "allocator": [allocator],
        "scheduler": scheduler,
        "workload": _workload(rng, requests, longest),
    }


def _workload(rng: np.random.Generator, requests: int, longest: int) -> Table:
    prompt = int(2 ** rng.uniform(6, 10.5))
    output = int(2 ** rng.uniform(4, 8.5))
    rate = float(np.round(2 ** rng.uniform(-1, 4), 2))
    lengths: Table = {
        "prompt": {"kind": "uniform", "min_tokens": prompt // 4, "max_tokens": prompt},
        "output": {"kind": "geometric", "mean": output},
    }
    arrivals: Table = {"kind": "poisson", "rate_per_s": rate}
    form = rng.random()
    if form < 0.2:
        arrivals = {"kind": "gamma", "rate_per_s": rate, "cv": 2.0}
    elif form < 0.7:
        turns = 4
        return {
            "kind": "sessions",
            "num_sessions": max(8, requests // turns),
            "arrivals": {**arrivals, "rate_per_s": max(0.1, round(rate / turns, 2))},
            "turns": {"kind": "fixed", "tokens": turns},
            **lengths,
            "prefixes": [{"tokens": {"kind": "fixed", "tokens": 256}}],
            "think": {"kind": "exponential", "mean_s": 2.0},
            "max_context": longest,
        }
    return {
        "kind": "synthetic",
        "num_requests": requests,
        "arrivals": arrivals,
        **lengths,
        "clip_to": longest,
    }
