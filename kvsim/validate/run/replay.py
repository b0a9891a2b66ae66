"""The observed requests again, through the simulated engine under the recorded settings."""

from typing import NamedTuple

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.record import EngineRecord, pool_usage
from kvsim.engine.replica import assemble
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.errors import InputError
from kvsim.request import Request, Stream
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
    log = _EngineLog(step_time)
    replica = assemble(run.meta.replica_spec(), Stream(run.requests), step_time, observer=log)
    replica.run()
    recorder = replica.recorder
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
        log.outside_domain, replica.scheduler.num_preemptions,
    )  # fmt: skip


class _EngineLog(Observer):
    """Watches the engine step by step and writes the records a real engine would."""

    def __init__(self, step_time: CalibratedTime) -> None:
        self.records: list[EngineRecord] = []
        self.held: list[Held] = []
        self.outside_domain = 0
        self._arrived = 0
        self._scheduled_after = 0
        self._step_time = step_time

    def arrived(self, scheduler: Scheduler, request: Request, now_ps: int) -> None:
        """It lies in the input queue until the scheduler looks."""
        self._arrived += 1

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        """The scheduler looks at the queue now."""
        self._scheduled_after = self._arrived

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """Count steps that were never measured."""
        self.held.append(Held(now_ps, pool_usage(scheduler.allocator)))
        if not plan.empty and self._step_time.outside_domain(plan.shape()):
            self.outside_domain += 1

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """Write the record."""
        record = EngineRecord.of(scheduler, now_ps, self._arrived - self._scheduled_after)
        self.records.append(record)
        self.held.append(Held(now_ps, record.kv_cache_usage))
