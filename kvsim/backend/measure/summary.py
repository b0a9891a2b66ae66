"""Samples from the log of a measurement, on any machine: rounds, and the facts on them."""

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kvsim.backend.measure.grid import StepPlan
from kvsim.backend.measure.host import state_warnings
from kvsim.backend.measure.log import Log, TimingRow
from kvsim.backend.measure.pace import PACE_PLAN
from kvsim.backend.measure.sentinel import judge
from kvsim.backend.measure.setup import Setup
from kvsim.backend.measure.timing import clock_of
from kvsim.backend.shape import Shape
from kvsim.backend.transformer.attentions import ATTENTIONS
from kvsim.plumbing.errors import InputError


class MeasuredSamples(NamedTuple):
    """Measured step times and how they were measured. rows: one sample a plan. facts: device,
    software, model, backend, method with its warnings, ceilings, sentinel, and the number of
    samples refused as impossible.
    """

    rows: list[dict[str, Any]]
    facts: dict[str, Any]


def samples_of_log(path: Path) -> MeasuredSamples:
    """Samples of a stopped measurement: see `summarise`. InputError if there are none."""
    log = Log.read(path)
    if not (log.rows and log.sentinels and log.facts):
        raise InputError("nothing was timed yet", where=str(path), remedy="measure again")
    return summarise(log)


def summarise(log: Log) -> MeasuredSamples:
    """The samples of a log, and its facts.

    They are those of the finished rounds alone, so that every plan has as many timings. If no round
    is finished, all timings count, with a warning. A row has kind, chunks, decode_seqs,
    decode_context_tokens, decode_context_max, seconds (the median of the rounds' medians),
    seconds_min, seconds_p90, repeats and source.
    """
    setup = Setup.from_record(log.setup)
    rounds = log.finished_rounds
    rows, refused = _rows(setup, log, rounds)
    clock = clock_of(setup.device, 0)
    sentinel = judge([timing.seconds for timing in log.sentinels], on_gpu=setup.on_gpu)
    device: dict[str, Any] = log.facts["device"]
    warnings = [*state_warnings(setup.device, device), *sentinel.warnings()]
    if not rounds:
        warnings.append(f"no round was finished: {len(rows)} of {len(log.plans)} steps were timed")
    facts = {
        "device": device,
        "software": log.facts["software"],
        "model": setup.shape.as_dict(),
        "backend": {
            "name": "kvsim",
            "attention": setup.kind,
            "kernel": ATTENTIONS[setup.kind].kernel,
            "store": setup.store,
            "block_size": setup.block_size,
            "graphs": setup.captures,
        },
        "method": {
            "clock": clock.name,
            "statistic": clock.statistic,
            "warm_ups": clock.warm_ups,
            "rounds": len(rounds),
            "seed": setup.seed,
            "order": "random in every round",
            "warnings": warnings,
            "pace_s": sentinel.median_s if PACE_PLAN in log.plans and not setup.on_gpu else None,
            "dropped": [
                {"chunks": plan.chunks, "contexts": plan.contexts, "why": why}
                for plan, why in log.dropped.items()
            ],
        },
        "ceilings": log.ceilings or {},
        "sentinel": sentinel._asdict(),
        "refused": refused,
    }
    return MeasuredSamples(rows, facts)


def _rows(setup: Setup, log: Log, rounds: list[int]) -> tuple[list[dict[str, Any]], int]:
    """A row for each plan, and how many were refused."""
    found: dict[StepPlan, list[TimingRow]] = defaultdict(list)
    for row in log.rows:
        if row.turn in rounds or not rounds:
            found[row.plan].append(row)
    rates = log.ceilings or {}
    fastest = max(float(rates.get(name, 0.0)) for name in ("copy_bytes_per_s", "read_bytes_per_s"))
    rows, refused = [], 0
    for plan in log.plans or found:
        timings = [row.timing for row in found[plan]]
        if not timings or plan in log.dropped:
            continue
        seconds = float(np.median([timing.seconds for timing in timings]))
        # Not asked of a CPU, which keeps small weights in caches faster than its memory.
        if setup.on_gpu and impossible(setup.shape, plan, seconds, fastest):
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
    return rows, refused


def impossible(shape: Shape, plan: StepPlan, seconds: float, bytes_per_s: float) -> bool:
    """Whether a time says more bytes a second than the device moves or reads (and 5 % of grace).

    A step reads the layers' weights once and the whole cache at the least, or what windows show.
    """
    tokens = plan.cache_tokens
    if shape.window is not None:
        spans = [*(new + prior for new, prior in plan.chunks), *plan.contexts]
        tokens = sum(min(span, shape.window) for span in spans)
    least_bytes = shape.layer_weight_bytes + shape.kv_bytes_per_token * tokens
    return least_bytes > 1.05 * bytes_per_s * seconds
