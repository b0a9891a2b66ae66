"""A small serving loop that fills a result's tables with consistent figures."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.summaries import run_summary

from kvsim.memory.ledger import CLASSES
from kvsim.report import latency
from kvsim.results.result import Result, Run
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

BYTES_PER_TOKEN = 512 * 1024
CAPACITY_TOKENS = 65536
# What each kind asks for a sequence of n tokens that ends with F.
ASKS = {
    "max-buffer": lambda n, final: 4096,
    "doubling": lambda n, final: max(256, 1 << (n - 1).bit_length()),
    "paged": lambda n, final: -(-n // 16) * 16,
}


@dataclass
class _Live:
    row: int
    n: int
    final: int
    left: int


def _ledger(kind: str, live: list[_Live], capacity: int, waiting: int) -> dict[str, int]:
    entry = dict.fromkeys(CLASSES, 0)
    for seq in live:
        asked = ASKS[kind](seq.n, seq.final)
        entry["used"] += seq.n
        entry["reserved"] += max(0, min(asked, seq.final) - seq.n)
        entry["overprovisioned"] += max(0, asked - max(seq.n, seq.final))
    free = capacity - sum(entry.values())
    entry["short" if waiting else "idle"] = free
    return {name: tokens * BYTES_PER_TOKEN for name, tokens in entry.items()}


def make_run(
    kind: str,
    label: str | None = None,
    *,
    requests: int = 120,
    capacity_tokens: int = CAPACITY_TOKENS,
    seed: int = 0,
    max_steps: int | None = None,
) -> Run:
    """One run of `requests` random requests; the series ends after `max_steps` rows."""
    rng = np.random.Generator(np.random.PCG64(seed))
    arrivals = np.cumsum(rng.exponential(6e10, requests)).astype(np.int64)
    prompts = rng.integers(20, 900, requests)
    outputs = rng.integers(1, 700, requests)
    table = pd.DataFrame(
        {
            "id": [f"r{index}" for index in range(requests)],
            "session": None,
            "status": "finished",
            "reason": None,
            "arrival_ps": arrivals,
            "scheduled_ps": np.int64(-1),
            "first_token_ps": np.int64(-1),
            "finish_ps": np.int64(-1),
            "prompt_tokens": prompts,
            "output_tokens": outputs,
            "cached_tokens": 0,
            "preemptions": 0,
        }
    )
    now, arrived, live, rows = 0, 0, [], []
    queue: list[int] = []
    while (queue or live or arrived < requests) and len(rows) != max_steps:
        if not queue and not live:
            now = max(now, int(arrivals[arrived]))
        while arrived < requests and arrivals[arrived] <= now:
            queue.append(arrived)
            arrived += 1
        while queue:
            prompt, output = int(prompts[queue[0]]), int(outputs[queue[0]])
            held = sum(ASKS[kind](seq.n, seq.final) + 32 for seq in live)
            if held + ASKS[kind](prompt, prompt + output) > capacity_tokens * 0.97:
                break
            row = queue.pop(0)
            live.append(_Live(row, prompt, prompt + output - 1, output))
            table.loc[row, "scheduled_ps"] = now
        steps = min([16, *(seq.left for seq in live)])
        first = _ledger(kind, live, capacity_tokens, len(queue))
        for seq in live:
            seq.n += steps - 1
        last = _ledger(kind, live, capacity_tokens, len(queue))
        end = now + steps * (8_000_000_000 + 150_000_000 * len(live))
        rows.append(
            {
                "start_ps": now,
                "end_ps": end,
                "steps": steps,
                "num_running": len(live),
                "num_waiting": len(queue),
                **{f"{name}_bytes": value for name, value in first.items()},
                **{f"{name}_end_bytes": value for name, value in last.items()},
            }
        )
        step_ps, now = (end - now) // steps, end
        for seq in live:
            seq.n += 1
            if table.loc[seq.row, "first_token_ps"] < 0:
                table.loc[seq.row, "first_token_ps"] = rows[-1]["start_ps"] + step_ps
            seq.left -= steps
            if not seq.left:
                table.loc[seq.row, "finish_ps"] = now
        live = [seq for seq in live if seq.left]
    done = table["finish_ps"] >= 0
    table.loc[~done, "status"] = "rejected"
    table.loc[~done, "reason"] = "the stream was cut"
    memory = pd.DataFrame(
        rows,
        columns=[
            *("start_ps", "end_ps", "steps", "num_running", "num_waiting"),
            *(f"{name}{end}_bytes" for name in CLASSES for end in ("", "_end")),
        ],
    ).astype(np.int64)
    label = label or kind
    summary = run_summary(_summary(kind, label, table, memory, capacity_tokens))
    tables = {"requests": lambda: table, "memory": lambda: memory}
    return Run(label, kind, summary, tables)


def _stats(values: np.ndarray) -> dict[str, float | None]:
    if not len(values):
        return dict.fromkeys(("mean", "p50", "p90", "p95", "p99"))
    cuts = {f"p{q}": float(np.percentile(values, q)) for q in (50, 90, 95, 99)}
    return {"mean": float(values.mean()), **cuts}


def _summary(
    kind: str, label: str, table: pd.DataFrame, memory: pd.DataFrame, capacity_tokens: int
) -> dict[str, Any]:
    done = table.loc[table["status"] == "finished"]
    spans = (memory["end_ps"] - memory["start_ps"]) / 1e12
    total = float(spans.sum())
    capacity = capacity_tokens * BYTES_PER_TOKEN
    means = {name: (memory[f"{name}_bytes"] + memory[f"{name}_end_bytes"]) / 2 for name in CLASSES}
    time_mean = {
        name: float((mean * spans).sum()) / total / capacity if total else 0.0
        for name, mean in means.items()
    }
    makespan = int(memory["end_ps"].max()) / 1e12 if len(memory) else 0.0
    held = 1 - (memory["idle_end_bytes"] + memory["short_end_bytes"]) / capacity
    return {
        "allocator": kind,
        "label": label,
        "requests": {
            "submitted": len(table),
            "finished": len(done),
            "rejected": len(table) - len(done),
        },
        "preemptions": 0,
        "makespan_s": makespan,
        "requests_per_s": len(done) / makespan if makespan else None,
        "output_tokens_per_s": int(done["output_tokens"].sum()) / makespan if makespan else None,
        "running_mean": float((memory["num_running"] * spans).sum()) / total if total else None,
        "ttft_s": _stats(latency.ttft_s(table)),
        "tpot_s": _stats(latency.tpot_s(table)),
        "itl_s": _stats(latency.tpot_s(table)),
        "e2e_s": _stats(latency.e2e_s(table)),
        "memory": {
            "capacity_bytes": capacity,
            "capacity_tokens": capacity_tokens,
            "time_mean": time_mean,
            "step_mean": time_mean,
            "peak_used": float(memory["used_end_bytes"].max()) / capacity if total else 0.0,
            "peak_allocated": float(held.max()) if total else 0.0,
        },
        "prefix_cache": {"query_tokens": 0, "hit_tokens": 0},
        "copied_bytes": 3 << 40 if kind == "doubling" else 0,
        "recomputed_tokens": 0,
        "swapped_bytes": 0,
        "steps": int(memory["steps"].sum()),
        "wall_s": 0.1,
    }


def make_result(*runs: Run) -> Result:
    """A result with these runs and their scenario."""
    scenario = {
        "seed": 0,
        "model": {"name": "llama-2-7b"},
        "device": {"name": "a100-80gb"},
        "memory": {"kv_cache_tokens": CAPACITY_TOKENS},
        "allocator": [{"kind": run.kind, "label": run.label} for run in runs],
        "scheduler": {"kind": "continuous", "max_num_seqs": 128},
        "step_time": {"kind": "roofline"},
        "workload": {"kind": "synthetic", "num_requests": 120},
        "provenance": {"notes": ["clipped 2 of 120 prompts to 900 tokens"]},
    }
    return Result(scenario, runs, "0.1.0")


# Results at the edge of what can happen, each made where a test asks for it.
ODD_RESULTS: dict[str, Callable[[], Result]] = {
    "three allocators": lambda: make_result(*(make_run(kind) for kind in ASKS)),
    "one allocator": lambda: make_result(make_run("paged")),
    "one request": lambda: make_result(make_run("paged", requests=1)),
    "a single step": lambda: make_result(make_run("paged", max_steps=1)),
    "no request finished": lambda: make_result(make_run("paged", max_steps=3)),
    "no step ran": lambda: make_result(make_run("paged", max_steps=0)),
    "one of two ran": lambda: make_result(make_run("paged"), make_run("doubling", max_steps=0)),
    "eight runs": lambda: make_result(
        *(make_run("paged", f"paged {n}", requests=20, seed=n) for n in range(8))
    ),
    "hostile label": lambda: make_result(make_run("paged", '</script><b>x & "y"')),
}


@cache
def odd(name: str) -> Result:
    """One of ODD_RESULTS, made once per process."""
    return ODD_RESULTS[name]()


@pytest.fixture(scope="session")
def odd_results() -> dict[str, Result]:
    """All unusual results, by name."""
    return {name: odd(name) for name in ODD_RESULTS}


@pytest.fixture(params=ODD_RESULTS, scope="session")
def odd_result(request: pytest.FixtureRequest) -> Result:
    """Each of the unusual results, one per test case."""
    return odd(request.param)


TRACED = {
    "model": {"name": "llama-2-7b"},
    "device": {"name": "a100-80gb"},
    "memory": {"kv_cache_tokens": 9000},
    "allocator": [{"kind": "max-buffer"}, {"kind": "doubling"}, {"kind": "paged"}],
    "workload": {
        "kind": "synthetic",
        "num_requests": 160,
        "arrivals": {"kind": "poisson", "rate_per_s": 8.0},
        "prompt": {"kind": "uniform", "min_tokens": 20, "max_tokens": 600},
        "output": {"kind": "geometric", "mean": 150},
        "clip_to": 2048,
        "prefixes": [{"tokens": {"kind": "fixed", "tokens": 64}, "count": 3}],
    },
}


@pytest.fixture(scope="session")
def traced() -> Result:
    """Three allocators on a full pool, with recorded addresses."""
    return Simulation(Scenario.from_table(TRACED)).result(addresses=True)


@pytest.fixture(scope="session")
def treed() -> Result:
    """A radix tree under two schedulers on a full pool, with recorded nodes."""
    radix = {"kind": "radix"}
    own = {"kind": "radix", "label": "SGLang", "page_size": 16, "scheduler": {"kind": "sglang"}}
    return Simulation(Scenario.from_table(TRACED | {"allocator": [radix, own]})).result(
        addresses=True
    )


@pytest.fixture(scope="session")
def result() -> Result:
    """Three allocators over the same 120 requests."""
    return odd("three allocators")


@pytest.fixture(scope="session")
def one_of_two() -> Result:
    """A run that served requests and one that served none."""
    return odd("one of two ran")


@pytest.fixture(scope="session")
def hostile() -> Result:
    """A run with a label that contains HTML."""
    return odd("hostile label")
