"""Steps to test a calibration on: drawn from a simulated run, never from the grid."""

from dataclasses import dataclass, field
from itertools import zip_longest

from numpy.random import PCG64, Generator

from kvsim.backend.measure.grid import StepPlan
from kvsim.backend.simulated.steps import decoding
from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.errors import InputError
from kvsim.simulation import Simulation

KINDS = ("decode", "prefill", "mixed")


def held_out_steps(
    simulation: Simulation,
    options: AllocatorOptions,
    count: int,
    *,
    step_tokens: int,
    pool_tokens: int,
    seed: int = 0,
) -> list[StepPlan]:
    """Up to `count` different steps of a run under one allocator.

    Kinds of steps have equal numbers as far as possible, and every step of a kind is equally
    likely.

    Steps beyond step_tokens or pool_tokens, which a device could not run, are skipped. The
    scenario's max_steps must be 1.
    """
    if simulation.scenario.max_steps != 1:
        raise InputError("held-out steps are drawn from single ones", where="max_steps", limit=1)
    random = Generator(PCG64(seed))
    sampler = _Sampler(random, count, step_tokens, pool_tokens)
    simulation.run(options, "held out", observer=sampler)
    drawn = []
    for kind in KINDS:
        kept = list(dict.fromkeys(sampler.kept[kind]))
        drawn.append([kept[at] for at in random.permutation(len(kept))])
    return _evenly(drawn, count)


def _evenly(drawn: list[list[StepPlan]], count: int) -> list[StepPlan]:
    """`count` items, taken from the lists round-robin."""
    turns = [plan for turn in zip_longest(*drawn) for plan in turn if plan is not None]
    return sorted(turns[:count])


@dataclass(slots=True)
class _Sampler(Observer):
    """An engine's observer with a reservoir for each kind of step."""

    random: Generator
    size: int
    step_tokens: int
    pool_tokens: int
    kept: dict[str, list[StepPlan]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    seen: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """Keep the step with the chance that makes all equally likely (Vitter's algorithm R)."""
        if plan.empty:
            return
        step = self._step(scheduler, plan)
        if step.step_tokens > self.step_tokens or step.cache_tokens > self.pool_tokens:
            return
        kept = self.kept[step.kind]
        self.seen[step.kind] += 1
        if len(kept) < self.size:
            kept.append(step)
            return
        place = int(self.random.integers(self.seen[step.kind]))
        if place < self.size:
            kept[place] = step

    def _step(self, scheduler: Scheduler, plan: Plan) -> StepPlan:
        chunks = tuple(
            (chunk.new_tokens, chunk.prior_tokens) for chunk in plan.chunks if not chunk.is_decode
        )
        contexts = [end for _, end in decoding(plan, scheduler)]
        contexts += [chunk.prior_tokens + 1 for chunk in plan.chunks if chunk.is_decode]
        return StepPlan(chunks, tuple(contexts), "held-out")
