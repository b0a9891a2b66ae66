"""Random scenarios by seed: servers configured well or badly, with loads that fit them or not."""

from typing import Any

import numpy as np

from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

Table = dict[str, Any]
SHARE = (0.9, 1.8)  # of what the server finishes where all requests are there at once
MODELS = ("llama-3.1-8b", "qwen3-8b", "llama-2-7b", "mistral-7b", "qwen3-14b")
DEVICES = ("a100-80gb", "h100", "l40s", "h200")


def drawn(seed: int, requests: int) -> Table:
    """One random scenario. requests: number of requests in its stream, approximate for
    conversations.

    Arrivals have a rate, never a number of users: in a closed loop the run would grow with the
    users tried, up to 10,000 requests. The rate is a random share (SHARE) of the rate that the
    server can finish. Rates drawn without regard to the server left 16 of 20 servers idle, so that
    no advice resulted.
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
    table: Table = {
        "seed": 0,
        "model": {"name": model, "max_model_len": longest},
        "device": {"name": str(rng.choice(DEVICES))},
        "memory": {"kv_cache_tokens": int(rng.integers(6, 60)) * 1024},
        "allocator": [allocator],
        "scheduler": scheduler,
        "workload": _workload(rng, requests, longest),
    }
    arrivals = table["workload"]["arrivals"]
    arrivals["rate_per_s"] = float(f"{rng.uniform(*SHARE) * _own_rate(table):.3g}")
    return table


def _own_rate(table: Table) -> float:
    """Rate in arrivals per second that the server can finish, from a run in which all requests come
    at once without pauses.
    """
    busy: Table = {"arrivals": {"kind": "at-once"}}
    if "think" in table["workload"]:
        busy["think"] = {"kind": "fixed", "seconds": 0}
    at_once = {**table, "workload": {**table["workload"], **busy}}
    scenario = Scenario.from_table(at_once)
    simulation = Simulation(scenario)
    run = simulation.run(scenario.allocator[0], simulation.labels[0])
    starts = sum(request.after is None for request in simulation.stream.requests)
    return starts / float(run.summary.simulated()["makespan_s"])


def _workload(rng: np.random.Generator, requests: int, longest: int) -> Table:
    prompt = int(2 ** rng.uniform(6, 10.5))
    output = int(2 ** rng.uniform(4, 8.5))
    lengths: Table = {
        "prompt": {"kind": "uniform", "min_tokens": prompt // 4, "max_tokens": prompt},
        "output": {"kind": "geometric", "mean": output},
    }
    arrivals: Table = {"kind": "poisson"}
    form = rng.random()
    if form < 0.2:
        arrivals = {"kind": "gamma", "cv": 2.0}
    elif form < 0.7:
        turns = 4
        return {
            "kind": "sessions",
            "num_sessions": max(8, requests // turns),
            "arrivals": arrivals,
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
