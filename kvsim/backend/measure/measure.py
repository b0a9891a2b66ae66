"""Measure step times: planned steps, in rounds of random order, resumable.

Needs torch and numpy alone, so that it runs on a bare GPU machine: `python -m kvsim.backend`.
Every timing is appended to a log as it comes; started again with the same settings, a measurement
goes on where its log ends.
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import PCG64, Generator

from kvsim.backend.measure.bench import Bench, StoreName
from kvsim.backend.measure.ceilings import ceilings
from kvsim.backend.measure.grid import StepPlan, most_tokens
from kvsim.backend.measure.host import device_facts, software_facts
from kvsim.backend.measure.log import Log, Row
from kvsim.backend.measure.timing import Clock, CpuClock, CudaClock
from kvsim.backend.shape import DTYPE_BYTES, Shape

SENTINEL_EVERY = 25
CPU_BUDGET_S = 0.04

Progress = Callable[[int, int], None]
"""Called after every timing with how many are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is measured, and how often.

    device: "cpu" or "cuda". graphs: decode steps of a GPU as CUDA graphs, on a paged store. rounds:
    passes over all plans, each in an order of its own. store: where the cache lies.
    """

    shape: Shape
    device: str = "cpu"
    block_size: int = 16
    graphs: bool = True
    rounds: int = 3
    seed: int = 0
    store: StoreName = "paged"

    def as_dict(self) -> dict[str, Any]:
        """For a file."""
        return {**asdict(self), "shape": self.shape.as_dict()}


class Measured(NamedTuple):
    """rows: one sample a plan; facts: device, software, model, backend, method, ceilings, sentinel,
    and how many samples were refused as impossible.
    """

    rows: list[dict[str, Any]]
    facts: dict[str, Any]


def measure(
    setup: Setup, plans: Sequence[StepPlan], log_path: Path, progress: Progress | None = None
) -> Measured:
    """Time every plan in every round, or what of it the log does not hold yet.

    A row has kind, chunks, decode_seqs, decode_context_tokens, decode_context_max, seconds (CPU:
    the least of all rounds; GPU: the median of their medians), seconds_min, seconds_p90, repeats
    and source. InputError where the log is of another setup. One torch thread while it runs on a
    CPU.
    """
    plans = list(dict.fromkeys(plans))
    on_gpu = setup.device.startswith("cuda")
    threads = torch.get_num_threads()
    if not on_gpu:
        torch.set_num_threads(1)
    try:
        log = Log.open(log_path, setup.as_dict())
        clock: Clock = CudaClock() if on_gpu else CpuClock(CPU_BUDGET_S)
        before = device_facts(setup.device)
        if log.ceilings is None:
            log.note_ceilings(ceilings(setup.device, setup.shape.dtype))
        _time_all(setup, plans, log, clock, progress)
    finally:
        torch.set_num_threads(threads)
    return _summary(setup, plans, log, clock, before)


def _time_all(
    setup: Setup, plans: list[StepPlan], log: Log, clock: Clock, progress: Progress | None
) -> None:
    order = Generator(PCG64(setup.seed))
    done = log.done
    todo = [
        (turn, plans[at])
        for turn in range(setup.rounds)
        for at in order.permutation(len(plans))
        if (turn, plans[at]) not in done
    ]
    total = setup.rounds * len(plans)
    if not todo:
        return
    bench = Bench(
        setup.shape,
        setup.device,
        pool_tokens=most_tokens(plans),
        most_spans=max(len(plan.chunks) + len(plan.contexts) for plan in plans),
        max_context=max(max(plan.contexts, default=1) for plan in plans),
        block_size=setup.block_size,
        graphs=setup.graphs,
        seed=setup.seed,
        store=setup.store,
    )
    sentinel = _sentinel(plans)
    for count, (turn, plan) in enumerate(todo):
        if count % SENTINEL_EVERY == 0:
            log.note_sentinel(clock.time(bench.work(sentinel)))
        log.note(Row(turn, plan, clock.time(bench.work(plan))))
        if progress is not None:
            progress(total - len(todo) + count + 1, total)
    bench.finish()


def _sentinel(plans: Sequence[StepPlan]) -> StepPlan:
    """The decode step (or, without one, any) of median size: measured again and again."""
    candidates = [plan for plan in plans if plan.kind == "decode"] or list(plans)
    return sorted(candidates, key=lambda plan: plan.cache_tokens)[len(candidates) // 2]


def _summary(
    setup: Setup, plans: list[StepPlan], log: Log, clock: Clock, before: dict[str, object]
) -> Measured:
    on_gpu = setup.device.startswith("cuda")
    found: dict[StepPlan, list[Row]] = defaultdict(list)
    for row in log.rows:
        found[row.plan].append(row)
    copy_rate = float((log.ceilings or {})["copy_bytes_per_s"])
    rows, refused = [], 0
    for plan in plans:
        timings = [row.timing for row in found[plan]]
        least = min(timing.min_s for timing in timings)
        middle = float(np.median([timing.seconds for timing in timings]))
        seconds = middle if on_gpu else least
        # Not asked of a CPU, which keeps small weights in caches faster than its memory.
        if on_gpu and impossible(setup.shape, plan, seconds, copy_rate):
            refused += 1
            continue
        rows.append(
            {
                "kind": plan.kind,
                "chunks": [list(chunk) for chunk in plan.chunks],
                "decode_seqs": len(plan.contexts),
                "decode_context_tokens": sum(plan.contexts),
                "decode_context_max": max(plan.contexts, default=0),
                "seconds": seconds,
                "seconds_min": least,
                "seconds_p90": max(timing.p90_s for timing in timings),
                "repeats": sum(timing.n for timing in timings),
                "source": plan.source,
            }
        )
    watched = [timing.seconds for timing in log.sentinels]
    graphs = setup.graphs and setup.store == "paged" and on_gpu
    facts = {
        "device": before,
        "software": software_facts(setup.device),
        "model": setup.shape.as_dict(),
        "backend": {
            "name": "kvsim",
            "attention": "triton" if on_gpu else "gather + SDPA",
            "store": setup.store,
            "block_size": setup.block_size,
            "graphs": graphs,
        },
        "method": {
            "clock": clock.name,
            "statistic": clock.statistic,
            "warm_ups": clock.warm_ups,
            "rounds": setup.rounds,
            "seed": setup.seed,
            "order": "random in every round",
        },
        "ceilings": log.ceilings or {},
        "sentinel": {
            "n": len(watched),
            "median_s": float(np.median(watched)),
            "min_s": min(watched),
            "max_s": max(watched),
        },
        "refused": refused,
    }
    return Measured(rows, facts)


def impossible(shape: Shape, plan: StepPlan, seconds: float, copy_bytes_per_s: float) -> bool:
    """Whether a time says more bytes a second than a device copy moves (and 5 % of grace).

    A step reads the layers' weights once and the whole cache at the least.
    """
    weight_bytes = shape.layer_weights * DTYPE_BYTES[shape.dtype]
    least_bytes = weight_bytes + shape.kv_bytes_per_token * plan.cache_tokens
    return least_bytes > 1.05 * copy_bytes_per_s * seconds


def write_samples(path: Path, measured: Measured) -> None:
    """The rows as JSON lines, and beside them PATH with the suffix .facts.json; whole or not."""
    lines = "".join(json.dumps(row) + "\n" for row in measured.rows)
    facts = json.dumps(measured.facts, indent=1) + "\n"
    write_whole(path, lines)
    write_whole(path.with_suffix(".facts.json"), facts)


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
