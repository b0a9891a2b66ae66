"""The engine: schedule a step, launch it, wait for the oldest in flight, process its outputs. It is
a simpy process.

Under asynchronous scheduling (`depth` 2) a step is scheduled while the one before it computes, so
the engine waits for the older of two plans. With pipeline parallelism one plan per stage is in
flight, one more under asynchronous scheduling, and the engine waits for the oldest. Executors
(executor/) add stages and copies.
"""

from collections.abc import Callable, Generator, Iterable
from enum import Enum
from typing import TYPE_CHECKING

import simpy

from kvsim.engine.books import Progress
from kvsim.engine.clock import EngineClock
from kvsim.engine.core import EngineCore
from kvsim.engine.parts import EngineParts
from kvsim.engine.plan import Plan
from kvsim.engine.run_end import Pause, RunEnd
from kvsim.memory.allocator import Refusal
from kvsim.request import Request

if TYPE_CHECKING:
    from kvsim.engine.connectors.totals import RunTotals


class Next(Enum):
    """The engine's next act after the launch of a plan.

    REST: nothing is computed, so the engine waits for an arrival. FILL: the plan joins those in
    flight, and the next one is scheduled. RUN: the engine waits for the oldest plan in flight, and
    `plan` repeats while nothing changes. LAND: the engine waits for the oldest plan, and `plan`
    does not repeat.
    """

    REST = "rest"
    FILL = "fill"
    RUN = "run"
    LAND = "land"


class Executor:
    """Launches the steps of an engine and says what the engine waits for.

    This one has a single device, with copies over the host link that end before their step starts.
    Subclasses add pipeline stages, or copies that run concurrently with steps. rest_ps: time that
    the engine sleeps between two steps of a run.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self.rest_ps = 0

    # --- plan and launch ------------------------------------------------------------------------

    def begin(self) -> bool:
        """Whether the engine calls schedule() now; if not, its next plan is empty."""
        return True

    def launch(self, plan: Plan) -> None:
        """Queue the plan's copies, and set the durations of its step and of its repetitions."""
        if plan.copies:
            self._copy_to_host(plan)
        if not plan.empty:
            core = self._core
            core.timer.time(plan, int(core.env.now), core.in_flight)

    def _copy_to_host(self, plan: Plan) -> None:
        """Queue swapped KV on the host link; the step starts when it is copied."""
        host_link, at_ps = self._core.parts.host_link, plan.start_ps
        for num_bytes, usage in plan.copies:
            copy_ps = host_link.copy_ps(at_ps, num_bytes)
            at_ps += copy_ps
            plan.stalls.append((copy_ps, usage))

    def next(self, plan: Plan) -> Next:
        """The engine's next act after the launch of `plan`."""
        core = self._core
        if plan.empty:
            return Next.REST if all(each.empty for each in core.in_flight) else Next.RUN
        return Next.FILL if len(core.in_flight) < core.steps_ahead else Next.RUN

    # --- wait -----------------------------------------------------------------------------------

    def rest(self, plan: Plan) -> Iterable[simpy.Event]:
        """Wait for an arrival; empty plans in flight are dropped."""
        core = self._core
        core.in_flight.clear()
        yield from core.idle(plan)
        yield from core.settle()

    def filled(self, plan: Plan) -> Iterable[simpy.Event]:
        """`plan` is in flight: wait until the engine can schedule the next one."""
        return self._hold(plan) if plan.held_ps else ()

    def _hold(self, plan: Plan) -> Generator[simpy.Event, None, None]:
        """Wait as long as the scheduler waited for copies before it launched the plan."""
        books = self._core.books
        books.open()
        yield Pause(self._core.env, plan.held_ps)
        books.held(plan)

    def repeatable(self, plan: Plan) -> int:
        """Number of steps equal to `plan` that may follow while no request arrives."""
        core, scheduler = self._core, self._core.scheduler
        if core.max_steps == 1:
            return 0
        if core.in_flight and not scheduler.returns_quietly(core.in_flight[0]):
            return 0
        if plan.num_drafts:
            more = scheduler.repeatable(plan, core.max_steps - 1)
            return core.timer.time_run(plan, scheduler.batch.shapes(more)) if more else 0
        return min(scheduler.repeatable(plan, core.max_steps - 1), plan.affine_steps - 1)

    def overlap(self, steps: int) -> int:
        """Number of steps of a run, its last ones, that are still in flight when the engine wakes
        at the run's end: 0 or 1.
        """
        return min(self._core.steps_ahead, 1)

    def until_ready(self, oldest: Plan) -> Iterable[simpy.Event]:
        """Wait until the outputs of the oldest plan can be processed."""
        return ()

    # --- commit ---------------------------------------------------------------------------------

    def ran(self, plan: Plan) -> None:
        """A run of repeated steps of `plan` is over; an arrival may have cut it short."""

    def stays(self, plan: Plan) -> bool:
        """Whether the newest plan joins those in flight when the oldest one is processed."""
        return not plan.empty

    def land(self, plan: Plan, now_ps: int) -> None:
        """Process the outputs of the plan's last step."""
        core = self._core
        core.books.returned(plan, now_ps)
        if core.timed is not None:
            core.timed.pass_time(now_ps)
        for seq in core.scheduler.finish(plan):
            core.intake.left(seq, now_ps)

    def land_oldest(self) -> Iterable[simpy.Event]:
        """Wait for the oldest plan in flight, and process its outputs."""
        core = self._core
        oldest = core.in_flight.popleft()
        core.books.open()
        yield from self.until_ready(oldest)
        if not oldest.empty:
            core.books.last_step(oldest, tuple(core.in_flight))
        self.land(oldest, core.now_ps)
        core.finished(oldest, core.now_ps)

    def landed(self, plan: Plan) -> Iterable[simpy.Event]:
        """The outputs of the oldest plan are processed; `plan` is the newest. Wait until the engine
        schedules again.
        """
        return ()

    # --- around the loop ------------------------------------------------------------------------

    def rouse(self) -> None:
        """Called when a request has arrived: end a sleep between polls."""

    def close(self) -> None:
        """Called when the engine has stopped."""

    def tier_totals(self) -> "RunTotals | None":
        """Totals so far of the tiers after the device; None without tiers."""
        return None


class Engine:
    """One engine replica: a scheduler, its allocator, and a clock in integer picoseconds.

    executor: launches the steps; made here. process: the simpy process of the loop, once started.
    """

    process: simpy.Process

    def __init__(
        self,
        env: EngineClock,
        parts: EngineParts,
        executor: Callable[[EngineCore], Executor] = Executor,
    ) -> None:
        core = self.core = EngineCore(env, parts)
        self.scheduler, self.intake = core.scheduler, core.intake
        self.executor = executor(core)
        self._books, self._in_flight = core.books, core.in_flight
        self._overlap = self.executor.overlap(1)  # steps in flight at the end of the run awaited
        self._runs = False  # it was planned for several steps
        self._end: RunEnd  # of the steps in flight
        self._progress = Progress()

    def start(self) -> "Engine":
        """Start the loop. Not called for data-parallel ranks in lockstep (waves.py)."""
        self.process = self.core.env.process(self._run())
        return self

    @property
    def stopped(self) -> bool:
        """Whether the engine schedules no more."""
        return self.core.stopped

    def refusal(self, request: Request) -> Refusal | None:
        """Why this engine would refuse `request`; None if it would not."""
        return self.intake.refusal(request)

    def turn_away(self, request: Request, refusal: Refusal | str) -> None:
        """Record that `request` arrives now and is refused."""
        self.intake.turn_away(request, self.core.now_ps, refusal)

    def submit(self, request: Request, came_ps: int | None = None) -> None:
        """`request` arrives now: queue its sequences, or refuse it. came_ps: time at which it
        reached the deployment, if that was earlier.
        """
        core = self.core
        now = core.now_ps
        changes_plan = self.intake.take(request, now, came_ps)
        self._books.queue(now)
        if core.observer is not None:
            core.observer.arrived(self.scheduler, request, now)
        if changes_plan:
            core.cut()
        self.executor.rouse()

    def cut(self) -> None:
        """End the current run of steps after its current step, or the idle time, and record up to
        there.
        """
        self.core.cut()

    def tier_totals(self) -> "RunTotals | None":
        """Totals so far of the tiers after the device; None without tiers."""
        return self.executor.tier_totals()

    def stop(self) -> None:
        """Stop after the current step: unfinished requests never finish."""
        self.core.stopped = True
        self.core.cut()

    # --- plan, launch, wait for the oldest, commit ------------------------------------------------

    def _run(self) -> Generator[simpy.Event, None, None]:
        core, executor, in_flight = self.core, self.executor, self._in_flight
        while not core.stopped:
            plan = self.plan() if executor.begin() else Plan()
            following = executor.next(plan)
            if following is Next.REST:
                yield from executor.rest(plan)
                continue
            if following is Next.FILL:
                in_flight.append(plan)
                yield from executor.filled(plan)
                continue
            if following is Next.RUN:
                yield self._wait(plan)
                steps = self._waited()
                yield from executor.until_ready(in_flight[0] if in_flight else plan)
                self.commit(plan, steps)
            else:
                if executor.stays(plan):
                    in_flight.append(plan)
                yield from executor.land_oldest()
            yield from executor.landed(plan)
            if core.routed:
                yield from core.settle()
        self._books.queue(core.now_ps)  # a replica that died leaves sequences that waited until now
        executor.close()

    def plan(self) -> Plan:
        """Schedule the next step and launch it."""
        core, scheduler, books = self.core, self.scheduler, self._books
        now = int(core.env.now)
        if core.observer is not None:
            core.observer.planning(scheduler, now)
        if core.timed is not None:
            core.timed.pass_time(now)
        plan = scheduler.schedule()
        if plan.failed:
            self.intake.failed(plan, now)
        for seq in plan.left:
            self.intake.left(seq, now)
        books.queue(now)
        self._progress.check(plan)
        start_ps = plan.start_ps = self._in_flight[-1].end_ps if self._in_flight else now
        books.planned(plan, start_ps)
        for seq, _, _ in plan.admitted:
            if seq.first_scheduled_ps < 0:
                seq.first_scheduled_ps = now
        if plan.held_ps:
            stall_ps = max(0, now + plan.held_ps - start_ps)
            plan.stalls.append((stall_ps, scheduler.usage()))
        self.executor.launch(plan)
        if core.observer is not None:
            core.observer.planned(scheduler, plan, now)
        return plan

    def _wait(self, plan: Plan) -> RunEnd:
        """The event at which a run of `plan`, repeated while nothing changes, ends."""
        core, executor, timed = self.core, self.executor, self.core.timed
        now, steps = core.now_ps, 1 if plan.empty else 1 + executor.repeatable(plan)
        overlap = self._overlap = executor.overlap(steps)
        runs = self._runs = steps > 1
        begin_ps = self._in_flight[0].end_ps if overlap and self._in_flight else now
        if plan.held_ps and self._in_flight:
            begin_ps = max(begin_ps, now + plan.held_ps)
        if runs:
            interval_ps = core.parts.report_interval_ps
            if interval_ps is not None:
                until_ps = interval_ps - begin_ps % interval_ps
                steps = min(steps, max(1, plan.steps_by(until_ps, steps) - 1 + overlap))
            lapse_ps = None if timed is None or steps == 1 else timed.next_lapse_ps
            if lapse_ps is not None:
                steps = min(steps, max(1, plan.steps_by(lapse_ps - begin_ps, steps) - 1 + overlap))
        self._books.open()
        rest_ps = executor.rest_ps
        end_ps = begin_ps + plan.duration_ps(steps - overlap) + rest_ps * (steps - 1)
        end = self._end = RunEnd(core.env, plan, steps, overlap, now, begin_ps, end_ps, rest_ps)
        core.run_end = end if steps > 1 else None
        return end

    def _waited(self) -> int:
        """Number of steps of the plan that ran: all repetitions, or fewer if an arrival cut the
        run.
        """
        self.core.run_end, self._end.callbacks = None, []  # the plan may be waited for again
        return self._end.steps

    def commit(self, plan: Plan, steps: int) -> None:
        """Record `steps` steps of `plan`, which are over, and process the outputs of the oldest
        plan.
        """
        core, executor = self.core, self.executor
        now = int(core.env.now)
        if self._overlap:
            done = self._in_flight.popleft()
            if not done.empty:
                self._books.last_step(done, (*self._in_flight, plan))
            executor.land(done, done.end_ps)
            self._repeat(plan, steps - 1)
            if self._runs:
                executor.ran(plan)
            if plan.held_ps:
                self._books.held(plan)
            if executor.stays(plan):
                self._in_flight.append(plan)
        else:
            done, end_ps = plan, now
            if self._runs and executor.rest_ps:
                end_ps = self._repeat_spaced(plan, steps, executor.rest_ps)
            else:
                self._repeat(plan, steps)
            if self._runs:
                executor.ran(plan)
            executor.land(done, end_ps)
        if core.observer is not None:
            core.observer.finished(self.scheduler, done, now)

    def _repeat(self, plan: Plan, steps: int) -> None:
        """Schedule and record `steps` computed steps of `plan`.

        Memory changes as each step is scheduled. With two steps in flight that is before the
        previous step's outputs are processed; with one it is afterwards. The first of `steps` is
        scheduled already. Steps that verify drafts are scheduled one by one.
        """
        scheduler, books, overlaps = self.scheduler, self._books, self._overlap > 0
        at_once = 1 if plan.ends_ps else steps
        step = 0
        while step < steps:
            if step and not overlaps:
                scheduler.step_returned()
            if step or overlaps:
                scheduler.repeat(plan, 1)
                books.scheduled(plan if overlaps else None)
            course = scheduler.repeat(plan, at_once - 1) if at_once > 1 else None
            books.computed(plan, step, at_once, course)
            if overlaps:
                scheduler.step_returned()
            step += at_once

    def _repeat_spaced(self, plan: Plan, steps: int, rest_ps: int) -> int:
        """Schedule and record `steps` steps of `plan` with a sleep of rest_ps between two; returns
        the end of the last step.
        """
        scheduler, books = self.scheduler, self._books
        token_ps = start_ps = plan.start_ps
        for step in range(steps):
            if step:
                books.idled(token_ps, start_ps)
                scheduler.repeat(plan, 1)
                books.scheduled(None)
            end_ps = start_ps + plan.first_ps + plan.growth_ps * step
            books.spaced(plan, start_ps, end_ps - start_ps, token_ps)
            token_ps, start_ps = end_ps, end_ps + rest_ps
        books.pause(scheduler.running, token_ps)
        return token_ps
