"""The observed requests again, through the simulated engine under the recorded settings."""

from collections.abc import Generator
from typing import NamedTuple

import simpy

from kvsim.engine.engine import Engine
from kvsim.engine.plan import Plan
from kvsim.engine.record import EngineRecord, pool_usage
from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.results.recorder import Recorder
from kvsim.step_time.calibrated.form import CalibratedTime


class Held(NamedTuple):
    """From this moment on so much of the pool is taken, as a fraction."""

    time_ps: int
    usage: float


class Replay(NamedTuple):
    """One simulated run. first_token_ps, last_token_ps: in the order of the observed requests.

    records: the engine's log, one a step. held: the pool, whenever a step was scheduled or its
    outputs were processed. outside_domain: steps whose time lies outside what was measured.
    """

    first_token_ps: tuple[int, ...]
    last_token_ps: tuple[int, ...]
    records: tuple[EngineRecord, ...]
    held: tuple[Held, ...]
    steps: int
    outside_domain: int
    preemptions: int


def replay(run: ObservedRun, step_time: CalibratedTime) -> Replay:
    """Simulate the run's requests, arriving when they did. InputError if the recorded pool could
    not have served a request.
    """
    options = run.meta.scheduler_options()
    allocator = run.meta.allocator_options().build(run.meta.memory_spec())
    env, recorder = simpy.Environment(), Recorder(allocator.capacity_bytes)
    scheduler = options.build(allocator, run.meta.max_model_len)
    log = _EngineLog(step_time)
    engine = Engine(
        env, scheduler, step_time, recorder, depth=options.depth, max_steps=1, observer=log
    )
    env.process(_arrive(env, run, engine, log))
    env.run()
    if recorder.rejected:
        request, _, reason = recorder.rejected[0]
        raise InputError(reason, where=f"request {request.id}")
    by_id = {
        seq.id: (seq.first_token_ps, finish_ps)
        for seq, finish_ps in zip(recorder.finished, recorder.finish_ps, strict=True)
    }
    first_ps, last_ps = zip(*(by_id[request.id] for request in run.requests), strict=True)
    return Replay(
        first_ps, last_ps, tuple(log.records), tuple(log.held), recorder.steps,
        log.outside_domain, scheduler.num_preemptions,
    )  # fmt: skip


def _arrive(
    env: simpy.Environment, run: ObservedRun, engine: Engine, log: "_EngineLog"
) -> Generator[simpy.Event, None, None]:
    for request in run.requests:
        yield env.timeout(request.arrival_ps - env.now)
        log.arrived += 1
        engine.submit(request)


class _EngineLog:
    """Watches the engine step by step and writes the records a real engine would."""

    engine: Engine

    def __init__(self, step_time: CalibratedTime) -> None:
        self.records: list[EngineRecord] = []
        self.held: list[Held] = []
        self.outside_domain = 0
        self.arrived = 0
        self._scheduled_after = 0
        self._step_time = step_time

    def planning(self, now_ps: int) -> None:
        """The scheduler looks at the queue now."""
        self._scheduled_after = self.arrived

    def planned(self, plan: Plan, now_ps: int) -> None:
        """Count steps that were never measured."""
        self.held.append(Held(now_ps, pool_usage(self.engine.scheduler.allocator)))
        if not plan.empty and self._step_time.outside_domain(plan.shape()):
            self.outside_domain += 1

    def finished(self, plan: Plan, now_ps: int) -> None:
        """Write the record."""
        unseen = self.arrived - self._scheduled_after
        record = EngineRecord.of(self.engine.scheduler, now_ps, unseen)
        self.records.append(record)
        self.held.append(Held(now_ps, record.kv_cache_usage))

    def idle(self, now_ps: int, *, stalled: bool) -> bool:
        """What could never run was refused on arrival, so the queue of an idle engine starts."""
        if stalled:
            raise InvariantError(f"{self.engine.scheduler.waiting.head} can never start")
        return False
