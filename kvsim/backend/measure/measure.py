"""Measure step times: planned steps, in rounds of random order, resumable.

Needs torch and numpy alone, so that it runs on a bare GPU machine.
Every timing is appended to a log as it comes; started again with the same settings, a measurement
goes on where its log ends.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.random import PCG64, Generator

from kvsim.backend.measure.bench import Bench
from kvsim.backend.measure.ceilings import ceilings
from kvsim.backend.measure.grid import StepPlan
from kvsim.backend.measure.host import Facts, Watch, software_facts
from kvsim.backend.measure.log import Log, TimingRow
from kvsim.backend.measure.pace import PACE_PLAN
from kvsim.backend.measure.setup import Setup
from kvsim.backend.measure.summary import MeasuredSamples, summarise
from kvsim.backend.measure.timing import StepClock, clock_of
from kvsim.backend.transformer.attentions import ATTENTIONS

SENTINEL_EVERY = 25
CPU_BUDGET_S = 0.04

Progress = Callable[[int, int], None]
"""Called after every timing with how many are done, and of how many."""


def measure(
    setup: Setup,
    plans: Sequence[StepPlan],
    log_path: Path,
    progress: Progress | None = None,
    on_round: Callable[[MeasuredSamples], None] | None = None,
) -> MeasuredSamples:
    """Time every plan in every round, except for timings that the log already holds.

    For the rows see `summarise`. Plans that the device has no memory for are dropped, and listed.
    InputError where the log is of another setup. One torch thread while it runs on a CPU. on_round:
    called with the samples of the finished rounds whenever one ends.
    """
    plans = list(dict.fromkeys(plans))
    threads = torch.get_num_threads()
    if not setup.on_gpu:
        torch.set_num_threads(1)
    watch = Watch(setup.device)
    try:
        log = Log.open(log_path, setup.as_dict())
        log.note_plans(plans)
        if not log.facts:
            log.note_facts(_facts(setup, watch.before))
        clock = clock_of(setup.device, CPU_BUDGET_S)
        if log.ceilings is None:
            log.note_ceilings(ceilings(setup.device, setup.shape.dtype))
        for _ in _rounds(setup, plans, log, clock, progress):
            log.note_facts(_facts(setup, watch.facts()))
            if on_round is not None:
                on_round(summarise(log))
    finally:
        torch.set_num_threads(threads)
    return summarise(log)


def _facts(setup: Setup, device: Facts) -> dict[str, Any]:
    return {
        "device": device,
        "software": software_facts(setup.device, ATTENTIONS[setup.kind].packages),
    }


def _rounds(
    setup: Setup, plans: list[StepPlan], log: Log, clock: StepClock, progress: Progress | None
) -> Iterator[int]:
    """Time what the log does not hold yet; yields at the end of each round."""
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
    sentinel = _sentinel(bench.plans, on_gpu=setup.on_gpu)
    for count, (turn, plan) in enumerate(todo):
        if count % SENTINEL_EVERY == 0:
            log.note_sentinel(clock.time(bench.work(sentinel)))
        if plan not in log.dropped:
            try:
                log.note(TimingRow(turn, plan, clock.time(bench.work(plan))))
            except torch.OutOfMemoryError:
                log.note_dropped(plan, "the device ran out of memory")
                bench.give_up()
        if count + 1 == len(todo) or todo[count + 1][0] != turn:
            bench.finish()
            yield turn
        if progress is not None:
            progress(total - len(todo) + count + 1, total)


def _sentinel(plans: Sequence[StepPlan], *, on_gpu: bool) -> StepPlan:
    """The step that is measured again and again, to see whether the machine's speed changes.

    On a CPU it is the pace step, if that is among the plans. Else it is the decode step (or,
    without one, any step) of median size.
    """
    if not on_gpu and PACE_PLAN in plans:
        return PACE_PLAN
    candidates = [plan for plan in plans if plan.kind == "decode"] or list(plans)
    return sorted(candidates, key=lambda plan: plan.cache_tokens)[len(candidates) // 2]
