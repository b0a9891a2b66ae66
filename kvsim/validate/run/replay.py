"""Replay the observed requests in the simulated engine, under the recorded settings."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import simpy

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.record import EngineRecord, pool_usage
from kvsim.engine.replica import assemble
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.errors import InputError
from kvsim.request import Request, Stream
from kvsim.results.recorder import Recorder
from kvsim.step_time.form import Measured, StepTime

Progress = Callable[[str, int, int], None]


class Held(NamedTuple):
    """Fraction of the KV pool in use from time_ps on."""

    time_ps: int
    usage: float


class Replay(NamedTuple):
    """Results of one simulated run.

    scheduled_ps (first admission), first_token_ps and last_token_ps have one entry per observed
    request; -1 if that was not reached before the end. cached_tokens has the prompt tokens found in
    the prefix cache at the first admission. step_ends_ps and generated have one entry per step:
    when its outputs were processed, and the output tokens up to then.

    tokens, chunks and sequences are the sums of computed tokens, prefill chunks and sequences over
    all steps; prompt_steps is the number of steps with prefill. outside_domain is the number of
    steps with times extrapolated beyond measured ones. records has the engine's log, one entry per
    step. held has the pool usage whenever a step was scheduled or its outputs were processed. A
    replay that is stopped early has neither records nor held.
    """

    scheduled_ps: tuple[int, ...]
    first_token_ps: tuple[int, ...]
    last_token_ps: tuple[int, ...]
    cached_tokens: tuple[int, ...]
    step_ends_ps: tuple[int, ...]
    generated: tuple[int, ...]
    records: tuple[EngineRecord, ...]
    held: tuple[Held, ...]
    steps: int
    tokens: int
    chunks: int
    sequences: int
    prompt_steps: int
    outside_domain: int
    preemptions: int


class ReplayEnd(NamedTuple):
    """When to stop a replay early: once the requests at the indices `served` have left, and not
    before time_ps.
    """

    served: Sequence[int]
    time_ps: int


def replay(
    run: ObservedRun,
    step_time: StepTime,
    stop: ReplayEnd | None = None,
    progress: Progress | None = None,
    what: str = "replaying the run",
) -> Replay:
    """Simulate the run's requests, which arrive at their recorded times.

    stop ends the simulation early. progress is called with (`what`, requests that have left the
    engine, all requests). InputError if a request exceeds the recorded pool.
    """
    spec = run.meta.replica_spec()
    recorder = Recorder(spec.capacity_bytes)
    log = _EngineLog(step_time, recorder, detailed=stop is None)
    replica = assemble(
        spec,
        Stream(run.requests),
        step_time,
        recorder=recorder,
        observer=log,
        progress=progress and partial(progress, what),
    )
    if stop is None:
        replica.run()
    else:
        log.missing = {run.requests[index].id for index in stop.served}
        log.served = replica.env.event()
        replica.env.run(until=log.served & replica.env.timeout(stop.time_ps))
    if recorder.rejected:
        request, _, reason = recorder.rejected[0]
        raise InputError(reason, where=f"request {request.id}")
    by_id = {
        seq.id: (seq.first_scheduled_ps, seq.first_token_ps, finish_ps, seq.hit_tokens)
        for seq, finish_ps in zip(recorder.finished, recorder.finish_ps, strict=True)
    }
    times = (by_id.get(request.id, (-1, -1, -1, 0)) for request in run.requests)
    scheduled_ps, first_ps, last_ps, cached_tokens = zip(*times, strict=True)
    return Replay(
        scheduled_ps=scheduled_ps,
        first_token_ps=first_ps,
        last_token_ps=last_ps,
        cached_tokens=cached_tokens,
        step_ends_ps=tuple(log.step_ends_ps),
        generated=tuple(log.generated),
        records=tuple(log.records),
        held=tuple(log.held),
        steps=recorder.steps,
        tokens=log.tokens,
        chunks=log.chunks,
        sequences=log.sequences,
        prompt_steps=log.prompt_steps,
        outside_domain=log.outside_domain,
        preemptions=replica.scheduler.num_preemptions,
    )


class _EngineLog(Observer):
    """Observer of the engine that writes a log record per step, as the real engine does.

    missing has the ids of requests that must leave before the event `served` fires.
    """

    served: simpy.Event | None = None

    def __init__(self, step_time: StepTime, recorder: Recorder, *, detailed: bool) -> None:
        self.step_ends_ps: list[int] = []
        self.records: list[EngineRecord] = []
        self.generated: list[int] = []
        self.tokens = self.chunks = self.sequences = self.prompt_steps = 0
        self.held: list[Held] = []
        self.outside_domain = 0
        self.missing: set[str] = set()
        self._arrived = 0
        self._scheduled_after = 0
        self._measured = step_time if isinstance(step_time, Measured) else None
        self._generated = 0
        self._recorder = recorder
        self._left = 0
        self._detailed = detailed

    def arrived(self, scheduler: Scheduler, request: Request, now_ps: int) -> None:
        """Count a request in the input queue; it leaves that queue when the scheduler next runs."""
        self._arrived += 1

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        """The scheduler takes all requests from the input queue now."""
        self._scheduled_after = self._arrived

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """Count what the step computes, and steps outside the measured range."""
        if self._detailed:
            self.held.append(Held(now_ps, pool_usage(scheduler.allocator)))
        self.tokens += plan.new_tokens
        self.chunks += len(plan.chunks)
        self.sequences += plan.num_decode + len(plan.chunks)
        self.prompt_steps += bool(plan.chunks)
        if plan.empty or self._measured is None:
            return
        if self._measured.outside_domain(plan.shape()):
            self.outside_domain += 1

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """Count output tokens, and write the log record of the step."""
        self._generated += plan.num_decode + sum(chunk.samples for chunk in plan.chunks)
        self.step_ends_ps.append(now_ps)
        self.generated.append(self._generated)
        if self._detailed:
            record = EngineRecord.of(scheduler, now_ps, self._arrived - self._scheduled_after)
            self.records.append(record)
            self.held.append(Held(now_ps, record.kv_cache_usage))
        elif self.served is not None and not self.served.triggered:
            self._tell_served(self.served)

    def _tell_served(self, served: simpy.Event) -> None:
        finished = self._recorder.finished
        self.missing.difference_update(seq.id for seq in finished[self._left :])
        self._left = len(finished)
        if not self.missing:
            served.succeed()
