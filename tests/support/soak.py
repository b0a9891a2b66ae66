"""A long run, watched: `make soak`. Requests by the million in parts, one process, each part under
another kind of books; what must not grow is memory from part to part, what must not drift is the
ledger and the numbers: the first part of each kind comes again at the end, and tells the same.

The requests are short: what is looked for gathers by the request, not by the token.
"""

import argparse
import gc
import json
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from kvsim.engine.replica import assemble
from kvsim.memory.ledger import check_sum
from kvsim.plumbing.errors import InputError
from kvsim.results import metrics
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from support.fuzzing.laws import check
from support.fuzzing.scenarios import scenario

MOST_MORE_BLOCKS = 2000  # of the interpreter's memory; a request that stayed would be ten alone
SHORT = {"kind": "uniform", "min_tokens": 1, "max_tokens": 48}
PAGED = {"kind": "paged", "block_size": 16}
# Each is other books: blocks counted, blocks handed out and hashed, as if somebody watched them,
# buffers on an arena, a tree, drafts verified in step; each at a rate just below what its pool
# bears.
BOOKS: dict[str, dict[str, Any]] = {
    "counted": {"rate": 240.0, "allocator": PAGED, "shared": True},
    "hashed": {"rate": 240.0, "allocator": PAGED, "shared": True, "watched": True},
    "buffers": {
        "rate": 220.0,
        "allocator": {
            "kind": "doubling",
            "initial_tokens": 16,
            "placement": {"kind": "first-fit"},
        },
    },
    "tree": {
        "rate": 130.0,
        "allocator": {"kind": "radix"},
        "scheduler": {"kind": "sglang", "max_running_requests": 128},
        "shared": True,
    },
    "drafts": {
        "rate": 400.0,
        "allocator": PAGED,
        "scheduler": {"kind": "continuous", "max_num_seqs": 128, "async_scheduling": True},
        "speculative_config": {
            "method": "eagle",
            "num_speculative_tokens": 3,
            "acceptance_rate": 0.7,
            "draft_us": 500.0,
        },
        "shared": True,
    },
}


def tables(books: str, seed: int, requests: int) -> dict[str, Any]:
    """A scenario of short requests in a small pool: some wait, some are preempted."""
    kind = BOOKS[books]
    workload = {
        "kind": "synthetic",
        "num_requests": requests,
        "arrivals": {"kind": "poisson", "rate_per_s": kind["rate"]},
        "prompt": SHORT,
        "output": SHORT,
        "max_tokens": {"kind": "fixed", "tokens": 48},
    }
    if "shared" in kind:
        workload["prefixes"] = [
            {"tokens": {"kind": "fixed", "tokens": 32}, "count": 20, "share": 0.8}
        ]
    drafts = {key: kind[key] for key in ("speculative_config",) if key in kind}
    return {
        **drafts,
        "seed": seed,
        "model": {"name": "opt-13b"},
        "device": {"name": "a100-80gb"},
        "memory": {"kv_cache_tokens": 3600},
        "allocator": [kind["allocator"]],
        "scheduler": kind.get("scheduler", {"kind": "continuous", "max_num_seqs": 128}),
        "step_time": {"kind": "linear", "base_us": 10_000.0, "context_token_ns": 10.0},
        "workload": workload,
    }


def part(books: str, seed: int, requests: int) -> dict[str, Any]:
    """One part of the soak: its numbers."""
    simulation = Simulation(Scenario.from_table(tables(books, seed, requests)))
    (options,) = simulation.scenario.allocator
    spec = replace(simulation.replica_spec(options), unwatched="watched" not in BOOKS[books])
    replica = assemble(spec, simulation.stream, simulation.step_time)
    replica.run()
    scheduler, recorder = replica.scheduler, replica.recorder
    allocator = scheduler.allocator
    allocator.check()
    usage = scheduler.usage()
    check_sum(usage, allocator.capacity_bytes)
    held = usage.used + usage.reserved + usage.overprovisioned + usage.rounding + usage.transient
    assert held == 0, usage
    assert len(recorder.finished) == requests, len(recorder.finished)
    memory = metrics.memory(
        recorder, allocator.token_bytes, shares=allocator.saved_bytes is not None
    )
    cache = allocator.cache_totals()
    return {
        "makespan_s": recorder.makespan_ps / 1e12,
        "preemptions": scheduler.num_preemptions,
        "steps": recorder.steps,
        "running": recorder.running_sum / recorder.total_ps,
        "waiting": recorder.waiting_sum / recorder.total_ps,
        "hit_tokens": cache.hit_tokens,
        "time_mean": dict(memory["time_mean"].items()),
        "ledger_apart": abs(sum(memory["time_mean"].values()) - 1),
    }


def soak(requests: int, parts: int) -> Iterator[dict[str, Any]]:
    """Simulate parts with each kind of accounting, then the first part of each again. Yields each
    result with the memory that the process holds; AssertionError if a repeated part differs.
    """
    first = dict[str, dict[str, Any]]()
    for number in range(parts + len(BOOKS)):
        again = number >= parts
        books = list(BOOKS)[(number - parts if again else number) % len(BOOKS)]
        seed = 0 if again else number // len(BOOKS)
        began = time.process_time()
        told = part(books, seed, requests // parts)
        if again:
            assert told == first[books], (told, first[books])
        elif seed == 0:
            first[books] = told
        gc.collect()
        seconds = round(time.process_time() - began, 2)
        yield {"books": books, "seed": seed, "requests": requests // parts, **told} | {
            "cpu_seconds": seconds,
            "held_blocks": sys.getallocatedblocks(),
            "held_mib": held_mib(),
        }


def grown(parts: list[dict[str, Any]]) -> list[str]:
    """Kinds of accounting whose last part left more Python objects alive than the second one, by
    more than MOST_MORE_BLOCKS. (Memory in MiB would depend on the system's allocator.)
    """
    found = []
    for books in BOOKS:
        held = [each["held_blocks"] for each in parts if each["books"] == books][1:]
        if held and held[-1] > held[0] + MOST_MORE_BLOCKS:
            found.append(f"objects stay under {books}: {held[0]:,} to {held[-1]:,}")
    return found


def scenarios(count: int) -> dict[str, Any]:
    """So many random scenarios over the whole option space, and what the process holds."""
    ran = refused = 0
    began, held = time.process_time(), [sys.getallocatedblocks()]
    for number in range(count):
        try:
            taken = check(scenario(Random(f"soak:{number}")))
        except InputError:
            taken = False
        ran, refused = ran + taken, refused + (not taken)
        if number % 500 == 499:
            gc.collect()
            held.append(sys.getallocatedblocks())
    return {
        "ran": ran,
        "refused": refused,
        "cpu_seconds": round(time.process_time() - began, 1),
        "held_blocks": held,
    }


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
    parser.add_argument("--parts", type=int, default=40)
    parser.add_argument("--scenarios", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=None, help="a JSON file for the figures")
    given = parser.parse_args()
    parts = []
    for each in soak(given.requests, given.parts):
        print(json.dumps(each), flush=True)
        parts.append(each)
    random = scenarios(given.scenarios)
    print(json.dumps(random), flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps({"parts": parts, "scenarios": random}, indent=1) + "\n")
    complaints = grown(parts)
    print("\n".join(complaints), file=sys.stderr, end="")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
