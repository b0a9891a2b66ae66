"""An engine in real time: the simulator's scheduler decides, the backend computes, a real clock
runs.

schedule -> launch -> read its tokens -> finish, with the very plans that a simulation makes. Under
asynchronous scheduling a step is scheduled and launched before the tokens of the one before it are
read (`kvsim.engine.engine`). On a device that computes nothing meanwhile, tokens are read before
the launch. That is after the schedule all the same, so the decisions are the same.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from kvsim.backend.measure.pace import Pace
from kvsim.backend.serve.clock import RunClock
from kvsim.backend.serve.memory import StoreMemory
from kvsim.backend.simulated.steps import StepMaker
from kvsim.backend.step import Move, TokenSpan
from kvsim.backend.transformer.runner import DecoderRunner
from kvsim.engine.intake import Intake
from kvsim.engine.plan import Plan
from kvsim.engine.record import EngineRecord
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.followers import Followers
from kvsim.observed.observation import Observation
from kvsim.observed.steps import ObservedStep, ScheduledStep, schedule_step
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import seconds_from_ps
from kvsim.request import Request
from kvsim.results.recorder import Recorder
from kvsim.sequence import Sequence
from kvsim.step import StepShape

NS_PER_S = 10**9
PACE_EVERY = 40  # steps
Left = Callable[[int, int], None]


class DecidedStep(NamedTuple):
    """A scheduled step. scheduled_ps, cpu_ns: when it was scheduled, by the run's clock and by the
    thread's CPU time. arrived, alone_arrived: as in `StepTiming`.
    """

    plan: Plan
    shape: StepShape
    row: ScheduledStep
    spans: tuple[TokenSpan, ...]
    moves: tuple[Move, ...]
    scheduled_ps: int
    cpu_ns: int
    arrived: int
    alone_arrived: int | None


class LaunchedStep(NamedTuple):
    """A step in flight. read: waits for its tokens. swapped_bytes: moved before it computed."""

    decided: DecidedStep
    read: Callable[[], list[int]]
    swapped_bytes: int


class RealTimeEngine:
    """One engine replica that serves requests in real time on a torch device.

    maker: makes what `runner` takes of the scheduler's plans. memory: watches the runner's store.
    steps_ahead: steps in flight when the next one is scheduled, 0 or 1. progress: called with
    (requests that have left, all) when one leaves. pace: measured now and then, with the clock
    stopped.
    """

    def __init__(
        self,
        requests: tuple[Request, ...],
        scheduler: Scheduler,
        runner: DecoderRunner,
        maker: StepMaker,
        memory: StoreMemory,
        steps_ahead: int = 0,
        progress: Left | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._maker = maker
        self._memory = memory
        self._device = runner.device
        self._steps_ahead = steps_ahead
        self._in_flight = deque[LaunchedStep]()
        self._progress = progress
        self._pace = pace
        self._total = self._missing = len(requests)
        self._coming: list[tuple[int, int, Request]] = []
        self._followers = Followers(requests)
        self._order = {request.id: order for order, request in enumerate(requests)}
        for order, request in enumerate(requests):
            if request.after is None:
                self._coming.append((request.arrival_ps, order, request))
        heapify(self._coming)
        self._now_ps = self._ended_ps = 0
        self._unclocked_ns = self._ended_cpu_ns = 0
        self._origin_ps = self._coming[0][0] if self._coming else 0
        self._log = Observation(Recorder(scheduler.allocator.capacity_bytes))
        self.intake = Intake(scheduler, self._log.recorder, self._left, refuse=True)

    def run(self, clock: RunClock) -> Observation:
        """Serve all requests; they arrive at their times, counted from the clock's zero."""
        preempted: list[Sequence] = []
        alone_arrived: int | None = None
        while self._missing:
            self._now_ps, cpu_ns = clock.now_ps(), self._cpu_ns()
            self._take_arrivals()
            plan, victims = self._schedule()
            preempted += victims
            if not plan.empty:
                step = self._decided(plan, preempted, clock, cpu_ns, alone_arrived)
                preempted, alone_arrived = [], None
                if self._in_flight and not self._device.overlaps:
                    self._land(clock)
                self._in_flight.append(self._launched(step))
            elif self._in_flight:
                alone_arrived = len(self._log.arrived)
            else:
                self._wait(clock)
            if len(self._in_flight) > (0 if plan.empty else self._steps_ahead):
                self._land(clock)
        return self._log

    def _schedule(self) -> tuple[Plan, list[Sequence]]:
        """The next plan, and the sequences preempted for it."""
        if not self._in_flight:
            return schedule_step(self._scheduler, self._preempted)
        plan = self._scheduler.schedule()
        self._preempted(plan)
        return plan, plan.preempted

    def _take_arrivals(self) -> None:
        """Add requests that have arrived by now to the waiting queue, or refuse them."""
        recorder = self._log.recorder
        while self._coming and self._coming[0][0] <= self._now_ps:
            arrival_ps, _, request = heappop(self._coming)
            refused = len(recorder.rejected)
            self.intake.take(request, arrival_ps)
            if len(recorder.rejected) == refused:
                self._log.arrived.append(request.id)

    def _left(self, request: Request) -> None:
        """Note that `request` has finished: its follow-ups arrive think_ps from now."""
        self._missing -= 1
        for follower in self._followers.after(request):
            due_ps, order = self._now_ps + follower.think_ps, self._order[follower.id]
            heappush(self._coming, (due_ps, order, follower))
        if self._progress is not None:
            self._progress(self._total - self._missing, self._total)

    def _wait(self, clock: RunClock) -> None:
        """Wait for the next arrival, since nothing can be computed before."""
        if self._coming:
            clock.wait_until(self._coming[0][0])
        elif self._missing:
            raise InvariantError(f"{self._scheduler.waiting.head} can never start")

    def _decided(
        self,
        plan: Plan,
        preempted: list[Sequence],
        clock: RunClock,
        cpu_ns: int,
        alone_arrived: int | None,
    ) -> DecidedStep:
        """The step of a plan just made. cpu_ns: CPU time of the thread before the plan was made."""
        scheduler, start_ps = self._scheduler, self._now_ps
        with self._unclocked(clock):
            shape = plan.shape()
            row = ScheduledStep.of(plan, shape, preempted, scheduler)
        for seq, _, _ in plan.admitted:
            if seq.first_scheduled_ps < 0:
                seq.first_scheduled_ps = start_ps
        spans, moves = self._maker.spans(plan, scheduler)
        return DecidedStep(
            plan, shape, row, spans, moves, start_ps, cpu_ns, len(self._log.arrived), alone_arrived
        )

    def _launched(self, step: DecidedStep) -> LaunchedStep:
        """Launch a step on the device, and begin to copy its tokens to the host."""
        host = self._runner.store.host
        copied_bytes = host.copied_bytes
        logits = self._runner.step(step.spans, step.moves)
        read = self._device.bring(logits.argmax(-1))
        return LaunchedStep(step, read, host.copied_bytes - copied_bytes)

    def _land(self, clock: RunClock) -> None:
        """Wait for the oldest step in flight, and process its output tokens."""
        step, read, swapped_bytes = self._in_flight.popleft()
        scheduler, log, plan = self._scheduler, self._log, step.plan
        read()  # an engine needs its tokens, so it waits for the device
        finished = scheduler.finish(plan)
        start_ps = max(step.scheduled_ps, self._ended_ps)
        cpu_ns = max(step.cpu_ns, self._ended_cpu_ns)
        self._now_ps = self._ended_ps = end_ps = clock.now_ps()
        self._ended_cpu_ns = self._cpu_ns()
        for chunk in plan.chunks:
            if chunk.samples and chunk.seq.first_token_ps < 0:
                chunk.seq.first_token_ps = end_ps
        with self._unclocked(clock):
            overlaps = self._steps_ahead > 0
            log.steps.append(
                ObservedStep(
                    **step.row.after(scheduler).model_dump(),
                    **{f"store_{name}": n for name, n in self._memory.now()._asdict().items()},
                    arrived=step.arrived,
                    start_s=self._seconds(start_ps),
                    end_s=self._seconds(end_ps),
                    cpu_s=(self._ended_cpu_ns - cpu_ns) / NS_PER_S,
                    scheduled_s=self._seconds(step.scheduled_ps) if overlaps else None,
                    alone_arrived=step.alone_arrived,
                    swapped_bytes=swapped_bytes,
                )
            )
            log.shapes.append(step.shape)
            if self._pace is not None and len(log.steps) % PACE_EVERY == 1:
                self._pace.take()
            log.records.append(EngineRecord.of(scheduler, end_ps))
        for seq in finished:
            self._maker.left(seq)
            self._runner.store.release(seq.id)
            self.intake.left(seq, end_ps)

    def _seconds(self, ps: int) -> float:
        return seconds_from_ps(ps - self._origin_ps)

    def _cpu_ns(self) -> int:
        """CPU time of the thread in ns, without the work for measurement that an engine lacks."""
        return time.thread_time_ns() - self._unclocked_ns

    @contextmanager
    def _unclocked(self, clock: RunClock) -> Iterator[None]:
        """A context with the clock stopped, for measurement work that an engine would not do."""
        begin_ns = time.thread_time_ns()
        with clock.stopped():
            yield
        self._unclocked_ns += time.thread_time_ns() - begin_ns

    def _preempted(self, plan: Plan) -> None:
        """Free the slots of a recomputed sequence; a swapped one is copied out with the
        next step.
        """
        for seq in self._maker.preempted(plan, self._scheduler):
            self._runner.store.release(seq.id)
