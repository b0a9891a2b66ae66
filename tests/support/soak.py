"""A long run, watched: `make soak`. Requests by the million in parts, one process; what must not
grow is memory from part to part, what must not drift is the ledger and the numbers of each part.
"""

import argparse
import gc
import json
import resource
import sys
import time
from pathlib import Path
from random import Random

import kvsim
from kvsim.plumbing.errors import InputError
from support.fuzzing.scenarios import check, scenario

TABLE = {
    "model": {"name": "opt-13b"},
    "device": {"name": "a100-80gb"},
    "memory": {"kv_cache_tokens": 65_536},
    "allocator": [{"kind": "paged", "block_size": 16}],
    "workload": {
        "kind": "synthetic",
        "arrivals": {"kind": "poisson", "rate_per_s": 6.0},
        "prompt": {"kind": "grid", "name": "sharegpt-opt.prompt_tokens"},
        "output": {"kind": "grid", "name": "sharegpt-opt.output_tokens"},
        "redraw_over": "max_model_len",
    },
}


def part(seed: int, requests: int) -> dict[str, float]:
    """One part of the soak: its numbers, and what the process holds after it."""
    began = time.perf_counter()
    table = {**TABLE, "seed": seed}
    table["workload"] = {**TABLE["workload"], "num_requests": requests}  # type: ignore[dict-item]  # a table
    (run,) = kvsim.simulate(table).runs
    counts = run.summary["requests"]
    assert counts["finished"] + counts["rejected"] == counts["submitted"] == requests
    total = sum(run.summary["memory"]["time_mean"].values())
    assert abs(total - 1) < 1e-9, total
    told = {
        "requests": requests,
        "seconds": round(time.perf_counter() - began, 2),
        "used": round(run.summary["memory"]["time_mean"]["used"], 4),
        "running": round(run.summary["running_mean"], 3),
        "ledger_apart": abs(total - 1),
    }
    del run
    gc.collect()
    return told | {"held_mib": held_mib()}


def held_mib() -> float:
    """What the process holds now, where the system tells it; else the most it ever held."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return round(pages * resource.getpagesize() / (1 << 20), 1)
    except OSError:
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--parts", type=int, default=20)
    parser.add_argument("--scenarios", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=None, help="a JSON file for the figures")
    given = parser.parse_args()
    parts = []
    for seed in range(given.parts):
        parts.append(part(seed, given.requests // given.parts))
        print(json.dumps(parts[-1]), flush=True)
    ran = refused = 0
    before = held_mib()
    for number in range(given.scenarios):
        try:
            taken = check(scenario(Random(f"soak:{number}")))
        except InputError:
            taken = False
        ran, refused = ran + taken, refused + (not taken)
    answer = {
        "parts": parts,
        "scenarios": {"ran": ran, "refused": refused, "held_mib": [before, held_mib()]},
    }
    print(json.dumps(answer["scenarios"]), flush=True)
    settled = [each["held_mib"] for each in parts[2:]]
    if settled and max(settled) > 1.2 * min(settled):
        print(f"memory grows: {settled[0]} to {settled[-1]} MiB", file=sys.stderr)
        return 1
    if given.out is not None:
        given.out.write_text(json.dumps(answer, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
