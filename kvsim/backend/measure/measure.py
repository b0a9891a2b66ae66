"""Measure step times: planned steps, in rounds of random order, resumable.

Needs torch and numpy alone, so that it runs on a bare GPU machine.
Every timing is appended to a log as it comes; started again with the same settings, a measurement
goes on where its log ends.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import PCG64, Generator

from kvsim.backend.devices import device_of
from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.measure.bench import Bench
from kvsim.backend.measure.ceilings import ceilings
from kvsim.backend.measure.grid import StepPlan
from kvsim.backend.measure.host import Watch, software_facts
from kvsim.backend.measure.log import Log, TimingRow
from kvsim.backend.measure.pace import PACE_PLAN
from kvsim.backend.measure.sentinel import judge
from kvsim.backend.measure.timing import StepClock, clock_of
from kvsim.backend.shape import DTYPE_BYTES, Shape
from kvsim.backend.stores.pooled import StoreName

SENTINEL_EVERY = 25
CPU_BUDGET_S = 0.04

KERNELS: dict[AttentionKind, str] = {
    "gather": "torch's scaled_dot_product_attention, span by span",
    "triton": "kvsim's own: split-KV decode, ragged prefill, in blocks and buffers",
    "reference": "kvsim's own in plain torch, which stands in for the GPU's",
}

Progress = Callable[[int, int], None]
"""Called after every timing with how many are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The setup of a measurement.

    device: "cpu" or "cuda". graphs: steps are captured and replayed where a graph holds them; by
    default as the device has it. rounds: passes over all plans, each in an order of its own. store:
    the store of the KV cache. attention: by default the device's own.
    """

    shape: Shape
    device: str = "cpu"
    block_size: int = 16
    graphs: bool | None = None
    rounds: int = 3
    seed: int = 0
    store: StoreName = "paged"
    attention: AttentionKind | None = None

    @property
    def kind(self) -> AttentionKind:
        """The kind of attention."""
        return self.attention or device_of(self.device).attention

    @property
    def captures(self) -> bool:
        """Whether steps are captured where that can be."""
        wanted = device_of(self.device).captures if self.graphs is None else self.graphs
        return wanted and self.kind != "gather"

    def as_dict(self) -> dict[str, Any]:
        """For a file."""
        return {**asdict(self), "shape": self.shape.as_dict()}


class MeasuredSamples(NamedTuple):
    """Measured step times and how they were measured. rows: one sample a plan. facts: device,
    software, model, backend, method with its warnings, ceilings, sentinel, and the number of
    samples refused as impossible.
    """

    rows: list[dict[str, Any]]
    facts: dict[str, Any]


def measure(
    setup: Setup, plans: Sequence[StepPlan], log_path: Path, progress: Progress | None = None
) -> MeasuredSamples:
    """Time every plan in every round, or what of it the log does not hold yet.

    A row has kind, chunks, decode_seqs, decode_context_tokens, decode_context_max, seconds (the
    median of the rounds' medians), seconds_min, seconds_p90, repeats and source. Plans that the
    device has no memory for are dropped, and listed. InputError where the log is of another setup.
    One torch thread while it runs on a CPU.
    """
    plans = list(dict.fromkeys(plans))
    on_gpu = setup.device.startswith("cuda")
    threads = torch.get_num_threads()
    if not on_gpu:
        torch.set_num_threads(1)
    watch = Watch(setup.device)
    try:
        log = Log.open(log_path, setup.as_dict())
        clock = clock_of(setup.device, CPU_BUDGET_S)
        if log.ceilings is None:
            log.note_ceilings(ceilings(setup.device, setup.shape.dtype))
        _time_all(setup, plans, log, clock, progress)
    finally:
        torch.set_num_threads(threads)
    return _summary(setup, plans, log, clock, watch)


def _time_all(
    setup: Setup, plans: list[StepPlan], log: Log, clock: StepClock, progress: Progress | None
) -> None:
    order = Generator(PCG64(setup.seed))
    done = log.done
    todo = [
        (turn, plans[at])
        for turn in range(setup.rounds)
        for at in order.permutation(len(plans))
        if (turn, plans[at]) not in done and plans[at] not in log.dropped
    ]
    total = setup.rounds * len(plans)
    if not todo:
        return
    bench = Bench(
        setup.shape,
        setup.device,
        [plan for plan in plans if plan not in log.dropped],
        block_size=setup.block_size,
        graphs=setup.captures,
        seed=setup.seed,
        store=setup.store,
        attention=setup.attention,
    )
    for plan in bench.dropped:
        log.note_dropped(plan, "the device's free memory does not hold it")
    sentinel = _sentinel(bench.plans, on_gpu=setup.device.startswith("cuda"))
    for count, (turn, plan) in enumerate(todo):
        if count % SENTINEL_EVERY == 0:
            log.note_sentinel(clock.time(bench.work(sentinel)))
        if plan not in log.dropped:
            try:
                log.note(TimingRow(turn, plan, clock.time(bench.work(plan))))
            except torch.OutOfMemoryError:
                log.note_dropped(plan, "the device ran out of memory")
                bench.give_up()
        if progress is not None:
            progress(total - len(todo) + count + 1, total)
    bench.finish()


def _sentinel(plans: Sequence[StepPlan], *, on_gpu: bool) -> StepPlan:
    """The step that is measured again and again.

    On a CPU it is the one that shows its pace, if that is among them. Else it is the decode step
    (or, without one, any) of median size.
    """
    if not on_gpu and PACE_PLAN in plans:
        return PACE_PLAN
    candidates = [plan for plan in plans if plan.kind == "decode"] or list(plans)
    return sorted(candidates, key=lambda plan: plan.cache_tokens)[len(candidates) // 2]


def _summary(
    setup: Setup, plans: list[StepPlan], log: Log, clock: StepClock, watch: Watch
) -> MeasuredSamples:
    on_gpu = setup.device.startswith("cuda")
    found: dict[StepPlan, list[TimingRow]] = defaultdict(list)
    for row in log.rows:
        found[row.plan].append(row)
    rates = log.ceilings or {}
    fastest = max(float(rates.get(name, 0.0)) for name in ("copy_bytes_per_s", "read_bytes_per_s"))
    rows, refused = [], 0
    for plan in plans:
        timings = [row.timing for row in found[plan]]
        if not timings or plan in log.dropped:
            continue
        seconds = float(np.median([timing.seconds for timing in timings]))
        # Not asked of a CPU, which keeps small weights in caches faster than its memory.
        if on_gpu and impossible(setup.shape, plan, seconds, fastest):
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
                "seconds_min": min(timing.min_s for timing in timings),
                "seconds_p90": max(timing.p90_s for timing in timings),
                "repeats": sum(timing.n for timing in timings),
                "source": plan.source,
            }
        )
    sentinel = judge([timing.seconds for timing in log.sentinels], on_gpu=on_gpu)
    device = watch.facts()
    facts = {
        "device": device,
        "software": software_facts(setup.device),
        "model": setup.shape.as_dict(),
        "backend": {
            "name": "kvsim",
            "attention": setup.kind,
            "kernel": KERNELS[setup.kind],
            "store": setup.store,
            "block_size": setup.block_size,
            "graphs": setup.captures,
        },
        "method": {
            "clock": clock.name,
            "statistic": clock.statistic,
            "warm_ups": clock.warm_ups,
            "rounds": setup.rounds,
            "seed": setup.seed,
            "order": "random in every round",
            "warnings": [*watch.warnings(device), *sentinel.warnings()],
            "pace_s": sentinel.median_s if PACE_PLAN in plans and not on_gpu else None,
            "dropped": [
                {"chunks": plan.chunks, "contexts": plan.contexts, "why": why}
                for plan, why in log.dropped.items()
            ],
        },
        "ceilings": rates,
        "sentinel": sentinel._asdict(),
        "refused": refused,
    }
    return MeasuredSamples(rows, facts)


def impossible(shape: Shape, plan: StepPlan, seconds: float, bytes_per_s: float) -> bool:
    """Whether a time says more bytes a second than the device moves or reads (and 5 % of grace).

    A step reads the layers' weights once and the whole cache at the least.
    """
    weight_bytes = shape.layer_weights * DTYPE_BYTES[shape.dtype]
    least_bytes = weight_bytes + shape.kv_bytes_per_token * plan.cache_tokens
    return least_bytes > 1.05 * bytes_per_s * seconds
