"""What do the parts of vLLM's engine cost? CPU of a request with a tier, drafts, stages, pairs of
these, or apart in prefill and decode, against the plain engine. Run it by hand; never a test.

One seeded load that one GPU serves with ease; each form runs in a process of its own, in turns with
the plain one. Start-up, imports and the making of requests are not counted. Ratios are medians of
the ratios within a round. What runs is what is installed here: compiled where it was compiled.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TIER = {"tier": [{"kind": "vllm-offloading", "kv_offloading_size": 16.0}]}
DRAFTS = {
    "speculative_config": {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "acceptance_rate": 0.6,
    }
}
STAGES = {"model": {"pipeline_parallel_size": 2}}
APART = {"disaggregation": {"prefill": {"replicas": 1}, "decode": {"replicas": 1}}}
# Each form, and the most that it may cost against the plain one.
FORMS: dict[str, tuple[tuple[dict[str, Any], ...], float | None]] = {
    "plain": ((), None),
    "tier": ((TIER,), 3),
    "drafts": ((DRAFTS,), 6),
    "stages": ((STAGES,), 5),
    "tier and drafts": ((TIER, DRAFTS), 10),
    "tier and stages": ((TIER, STAGES), 8),
    "prefill and decode": ((APART,), 3),
}


def scenario_of(form: str, requests: int, *, ahead: bool) -> dict[str, Any]:
    """The tables of the load under one form."""
    made: dict[str, Any] = {
        "model": {"name": "llama-3.1-8b"},
        "device": {"name": "h100-80gb"},
        "memory": {"num_gpu_blocks": 12500},
        "allocator": [{"kind": "paged", "enable_prefix_caching": True}],
        "scheduler": {"kind": "continuous", "async_scheduling": ahead},
        "workload": {
            "kind": "synthetic",
            "num_requests": requests,
            "arrivals": {"kind": "poisson", "rate_per_s": 3.0},
            "prompt": {"kind": "uniform", "min_tokens": 200, "max_tokens": 1000},
            "output": {"kind": "fixed", "tokens": 300},
        },
    }
    for part in FORMS[form][0]:
        for key, value in part.items():
            made[key] = {**made[key], **value} if key == "model" else value
    return made


def run(form: str, requests: int, *, ahead: bool) -> None:
    """Print CPU microseconds a request of this form."""
    from kvsim.plumbing.process import lean
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation

    lean()
    scenario = Scenario.from_table(scenario_of(form, requests, ahead=ahead))
    simulation = Simulation(scenario)
    # A short run first: modules are imported where they are used.
    warm = Scenario.from_table(scenario_of(form, 3, ahead=ahead))
    Simulation(warm).run(warm.allocator[0], "warm")
    began = time.process_time()
    simulation.run(scenario.allocator[0], form)
    print(json.dumps((time.process_time() - began) * 1e6 / requests))


def measured(form: str, options: argparse.Namespace) -> float:
    """CPU microseconds a request, of a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--form", form]
    command += ["--requests", str(options.requests)] + ["--ahead"] * options.ahead
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return float(json.loads(answer.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ahead", action="store_true", help="async_scheduling = true")
    parser.add_argument("--only", action="append", default=[], help="forms by name")
    parser.add_argument("--form", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.form:
        run(options.form, options.requests, ahead=options.ahead)
        return
    names = [name for name in options.only or FORMS if name != "plain"]
    print(f"{'':<20}{'us/request':>12}{'of plain':>10}{'at most':>9}")
    ratios: dict[str, list[float]] = {name: [] for name in names}
    took: dict[str, list[float]] = {name: [] for name in ("plain", *names)}
    for _ in range(options.rounds):
        plain = measured("plain", options)
        took["plain"].append(plain)
        for name in names:
            took[name].append(measured(name, options))
            ratios[name].append(took[name][-1] / plain)
    print(f"{'plain':<20}{statistics.median(took['plain']):>12.0f}")
    for name in names:
        most = FORMS[name][1]
        limit = "" if most is None else f"{most:g}"
        ratio = statistics.median(ratios[name])
        print(f"{name:<20}{statistics.median(took[name]):>12.0f}{ratio:>9.1f}x{limit:>9}")


if __name__ == "__main__":
    main()
