"""An engine in real time: the simulator's scheduler decides, the backend computes, a real clock
runs.

schedule -> run -> finish, one step after the other, with the very plans that a simulation makes.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heapify, heappop, heappush

from kvsim.backend.measure.pace import Pace
from kvsim.backend.serve.clock import RunClock
from kvsim.backend.serve.memory import StoreMemory
from kvsim.backend.simulated.steps import StepMaker
from kvsim.backend.transformer.runner import DecoderRunner
from kvsim.engine.intake import Intake
from kvsim.engine.plan import Plan
from kvsim.engine.record import EngineRecord
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.observed.observation import Observation
from kvsim.observed.steps import ObservedStep, ScheduledStep, schedule_step
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import seconds_from_ps
from kvsim.request import Request
from kvsim.results.recorder import Recorder
from kvsim.sequence import Sequence

NS_PER_S = 10**9
PACE_EVERY = 40  # steps
Left = Callable[[int, int], None]


class RealTimeEngine:
    """One engine replica on a real backend.

    maker: makes what `runner` takes of the scheduler's plans. memory: watches the runner's store.
    progress: called with (requests that have left, all) when one leaves. pace: taken now and then,
    off the clock.
    """

    def __init__(
        self,
        requests: tuple[Request, ...],
        scheduler: Scheduler,
        runner: DecoderRunner,
        maker: StepMaker,
        memory: StoreMemory,
        progress: Left | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._maker = maker
        self._memory = memory
        self._progress = progress
        self._pace = pace
        self._total = self._missing = len(requests)
        self._coming: list[tuple[int, int, Request]] = []
        self._followers: dict[str, list[tuple[int, Request]]] = {}
        for order, request in enumerate(requests):
            if request.after is None:
                self._coming.append((request.arrival_ps, order, request))
            else:
                self._followers.setdefault(request.after, []).append((order, request))
        heapify(self._coming)
        self._now_ps = 0
        self._unclocked_ns = 0
        self._origin_ps = self._coming[0][0] if self._coming else 0
        self._log = Observation(Recorder(scheduler.allocator.capacity_bytes))
        self.intake = Intake(scheduler, self._log.recorder, self._left, refuse=True)

    def run(self, clock: RunClock) -> Observation:
        """Serve all requests; they arrive at their times, counted from the clock's zero."""
        while self._missing:
            self._now_ps, cpu_ns = clock.now_ps(), time.thread_time_ns()
            self._take_arrivals()
            plan, preempted = schedule_step(self._scheduler, self._preempted)
            if plan.empty:
                self._wait(clock)
            else:
                self._step(plan, preempted, clock, cpu_ns)
        return self._log

    def _take_arrivals(self) -> None:
        """Whoever has come by now is let in, or refused."""
        recorder = self._log.recorder
        while self._coming and self._coming[0][0] <= self._now_ps:
            arrival_ps, _, request = heappop(self._coming)
            refused = len(recorder.rejected)
            self.intake.take(request, arrival_ps)
            if len(recorder.rejected) == refused:
                self._log.arrived.append(request.id)

    def _left(self, request: Request) -> None:
        """`request` has left, now: its follow-ups arrive after their pause."""
        self._missing -= 1
        for order, follower in self._followers.pop(request.id, ()):
            heappush(self._coming, (self._now_ps + follower.think_ps, order, follower))
        if self._progress is not None:
            self._progress(self._total - self._missing, self._total)

    def _wait(self, clock: RunClock) -> None:
        """Wait for the next arrival, since nothing can be computed before."""
        if self._coming:
            clock.wait_until(self._coming[0][0])
        elif self._missing:
            raise InvariantError(f"{self._scheduler.waiting.head} can never start")

    def _step(self, plan: Plan, preempted: list[Sequence], clock: RunClock, cpu_ns: int) -> None:
        scheduler, log, start_ps = self._scheduler, self._log, self._now_ps
        self._unclocked_ns = 0
        with self._unclocked(clock):
            shape = plan.shape()
            row = ScheduledStep.of(plan, shape, preempted, scheduler)
        for seq, _, _ in plan.admitted:
            if seq.first_scheduled_ps < 0:
                seq.first_scheduled_ps = start_ps
        host = self._runner.store.host
        copied_bytes = host.copied_bytes
        logits = self._runner.step(*self._maker.spans(plan, scheduler))
        logits.argmax(-1).tolist()  # an engine needs its tokens, so it waits for the device
        finished = scheduler.finish(plan)
        self._now_ps = end_ps = clock.now_ps()
        cpu_ns = time.thread_time_ns() - cpu_ns - self._unclocked_ns
        for chunk in plan.chunks:
            if chunk.samples and chunk.seq.first_token_ps < 0:
                chunk.seq.first_token_ps = end_ps
        with self._unclocked(clock):
            log.steps.append(
                ObservedStep(
                    **row.after(scheduler).model_dump(),
                    **{f"store_{name}": n for name, n in self._memory.now()._asdict().items()},
                    arrived=len(log.arrived),
                    start_s=seconds_from_ps(start_ps - self._origin_ps),
                    end_s=seconds_from_ps(end_ps - self._origin_ps),
                    cpu_s=cpu_ns / NS_PER_S,
                    swapped_bytes=host.copied_bytes - copied_bytes,
                )
            )
            log.shapes.append(shape)
            if self._pace is not None and len(log.steps) % PACE_EVERY == 1:
                self._pace.take()
            log.records.append(EngineRecord.of(scheduler, end_ps))
        for seq in finished:
            self._maker.left(seq)
            self._runner.store.release(seq.id)
            self.intake.left(seq, end_ps)

    @contextmanager
    def _unclocked(self, clock: RunClock) -> Iterator[None]:
        """A context for work that an engine would not do: the clock is stopped inside."""
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
