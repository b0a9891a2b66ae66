"""Streams of the contract tests that draw values for keys that might change nothing."""

from typing import Any

Table = dict[str, Any]


def uniform(least: int, most: int) -> Table:
    return {"kind": "uniform", "min_tokens": least, "max_tokens": most}


PREFIXES = [{"tokens": {"kind": "fixed", "tokens": 70}, "count": 2}]
SESSIONS: Table = {
    "kind": "sessions", "num_sessions": 12, "arrivals": {"kind": "poisson", "rate_per_s": 40.0},
    "turns": {"kind": "fixed", "tokens": 4}, "first_prompt": uniform(50, 400),
    "prompt": uniform(20, 60), "output": uniform(20, 60), "prefixes": PREFIXES,
    "think": {"kind": "exponential", "mean_s": 0.05},
}  # fmt: skip
SINGLE: Table = {
    "kind": "synthetic", "num_requests": 60, "arrivals": {"kind": "poisson", "rate_per_s": 2000.0},
    "prompt": uniform(20, 400), "output": uniform(5, 150), "prefixes": PREFIXES,
    "priorities": [{"priority": 0, "share": 1}, {"priority": 5, "share": 1}],
}  # fmt: skip
