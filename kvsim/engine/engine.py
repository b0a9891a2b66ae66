"""The engine: plan, wait, commit, as a simpy process.

Under asynchronous scheduling (`depth` 2) a step is scheduled while the one before it computes, so
the engine waits for the older of two plans. With pipeline parallelism one plan per stage is in
flight, one more under asynchronous scheduling, and the engine waits for the oldest. Everything else
is the same.
"""

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, cast

import simpy

from kvsim.engine.books import Books, Progress
from kvsim.engine.clock import EngineClock
from kvsim.engine.intake import Intake
from kvsim.engine.moments import PLANS, moment
from kvsim.engine.parts import EngineParts
from kvsim.engine.plan import UNBOUNDED, Plan, StepTimer
from kvsim.engine.run_end import Pause, RunEnd
from kvsim.engine.stuck import check_stuck
from kvsim.memory.allocator import Refusal
from kvsim.plumbing.errors import InvariantError
from kvsim.request import Request

if TYPE_CHECKING:
    from kvsim.engine.connectors.totals import RunTotals


class Engine:
    """One engine replica: a scheduler, its allocator, and a clock in integer picoseconds."""

    def __init__(self, env: EngineClock, parts: EngineParts) -> None:
        self.env = env
        scheduler = self.scheduler = parts.scheduler
        recorder = parts.recorder
        self._timer = StepTimer(parts.step_time)
        self._host_link = parts.host_link
        self._behind = parts.depth - 1
        self._overlap = min(self._behind, 1)  # steps in flight at the end of the run awaited
        self._timed, self._routed = scheduler.allocator.timed, parts.routed
        self._report_interval_ps = parts.report_interval_ps
        self._max_steps = UNBOUNDED if parts.max_steps is None else parts.max_steps
        self.intake = Intake(scheduler, recorder, parts.on_left, refuse=parts.refuse)
        self._books = Books(scheduler, recorder)
        self._observer = parts.observer
        self._refuse = parts.refuse
        self._in_flight: deque[Plan] = deque()
        self._end: RunEnd  # of the steps in flight
        self._run_end: RunEnd | None = None  # `_end`, if it can be cut
        self._wake: simpy.Event | None = None  # while idle
        self._progress = Progress()
        self.stopped = False
        self.process = env.process(self._run())

    @property
    def now_ps(self) -> int:
        """The simulated time: simpy's clock, which only gets integers here."""
        return cast("int", self.env.now)

    def refusal(self, request: Request) -> Refusal | None:
        """Why this engine would refuse `request`; None if it would not."""
        return self.intake.refusal(request)

    def turn_away(self, request: Request, refusal: Refusal | str) -> None:
        """`request` arrives now and is refused."""
        self.intake.turn_away(request, self.now_ps, refusal)

    def submit(self, request: Request, came_ps: int | None = None) -> None:
        """`request` arrives now: its sequences wait, or it is refused. came_ps: the time at which
        it reached the deployment, if that was earlier.
        """
        now = self.now_ps
        changes_plan = self.intake.take(request, now, came_ps)
        self._books.queue(now)
        if self._observer is not None:
            self._observer.arrived(self.scheduler, request, now)
        if changes_plan:
            self.cut()

    def cut(self) -> None:
        """End the run of steps with its current step, or the idle time, and close the books
        there.
        """
        if self._run_end is not None:
            self._run_end.cut(self.now_ps)
        elif self._wake is not None and not self._wake.triggered:
            self._wake.succeed()

    def tier_totals(self) -> "RunTotals | None":
        """Totals so far of the tiers after the device; None without tiers."""
        return None

    def stop(self) -> None:
        """Stop with the current step: `process` ends, unfinished requests never finish."""
        self.stopped = True
        self.cut()

    # --- plan, wait, commit ---------------------------------------------------------------------

    def _run(self) -> Generator[simpy.Event, None, None]:
        while not self.stopped:
            plan = self._plan()
            if plan.empty and all(each.empty for each in self._in_flight):
                self._in_flight.clear()
                yield from self._idle(plan)
                if self._routed:
                    yield from self._settle()
            elif self._fills(plan) and len(self._in_flight) < self._behind:
                self._in_flight.append(plan)
                if plan.held_ps:
                    self._books.open()
                    yield Pause(self.env, plan.held_ps)
                    self._books.held(plan)
            else:
                yield self._wait(plan)
                self._commit(plan, self._waited())
                if self._routed:
                    yield from self._settle()

    def _fills(self, plan: Plan) -> bool:
        """Whether the engine goes on with the next plan while there is a place in flight."""
        return not plan.empty

    def _flies(self, plan: Plan) -> bool:
        """Whether a plan takes a place among those in flight."""
        return not plan.empty

    def _settle(self) -> Generator[simpy.Event, None, None]:
        """If there is a router: process all other events of this instant before the next plan."""
        if self.env.peek() == self.env.now:
            yield moment(self.env, 0, PLANS)

    def _plan(self) -> Plan:
        """Schedule the next step and time it."""
        now = self.now_ps
        if self._observer is not None:
            self._observer.planning(self.scheduler, now)
        if self._timed is not None:
            self._timed.pass_time(now)
        plan = self.scheduler.schedule()
        if plan.failed:
            self.intake.failed(plan, now)
        for seq in plan.left:
            self.intake.left(seq, now)
        self._books.queue(now)
        self._progress.check(plan)
        self._books.planned(plan, self._in_flight[-1].end_ps if self._in_flight else now)
        for seq, _, _ in plan.admitted:
            if seq.first_scheduled_ps < 0:
                seq.first_scheduled_ps = now
        plan.start_ps = self._in_flight[-1].end_ps if self._in_flight else now
        if plan.held_ps:
            stall_ps = max(0, now + plan.held_ps - plan.start_ps)
            plan.stalls.append((stall_ps, self.scheduler.usage()))
        self._copy(plan)
        if not plan.empty:
            self._time(plan)
        if self._observer is not None:
            self._observer.planned(self.scheduler, plan, now)
        return plan

    def _time(self, plan: Plan) -> None:
        """Set how long the step of the plan takes, and its repetitions."""
        self._timer.time(plan, self.now_ps, self._in_flight)

    def _copy(self, plan: Plan) -> None:
        """Queue the plan's copies on the host link; the step starts after the last of them."""
        at_ps = plan.start_ps
        for num_bytes, usage in plan.copies:
            copy_ps = self._host_link.copy_ps(at_ps, num_bytes)
            at_ps += copy_ps
            plan.stalls.append((copy_ps, usage))

    def _wait(self, plan: Plan) -> RunEnd:
        """The event at which the plan, repeated while nothing changes, is committed."""
        now, steps = self.now_ps, 1 if plan.empty else 1 + self._repeatable(plan)
        overlap = self._overlap = self._overlap_of(steps)
        begin_ps = self._in_flight[0].end_ps if overlap and self._in_flight else now
        if plan.held_ps and self._in_flight:
            begin_ps = max(begin_ps, now + plan.held_ps)
        if self._report_interval_ps is not None and steps > 1:
            until_ps = self._report_interval_ps - begin_ps % self._report_interval_ps
            steps = min(steps, max(1, plan.steps_by(until_ps, steps) - 1 + overlap))
        lapse_ps = None if self._timed is None or steps == 1 else self._timed.next_lapse_ps
        if lapse_ps is not None:
            steps = min(steps, max(1, plan.steps_by(lapse_ps - begin_ps, steps) - 1 + overlap))
        self._books.open()
        end_ps = begin_ps + plan.duration_ps(steps - overlap)
        end = self._end = RunEnd(self.env, plan, steps, overlap, now, begin_ps, end_ps)
        self._run_end = end if steps > 1 else None
        return end

    def _overlap_of(self, steps: int) -> int:
        """Number of steps in flight at the end of a run of `steps` steps."""
        return self._overlap

    def _waited(self) -> int:
        """Number of steps that the plan ran: all repeatable ones, or fewer if something arrived."""
        self._run_end, self._end.callbacks = None, []  # the plan may be waited for again
        return self._end.steps

    def _repeatable(self, plan: Plan) -> int:
        """Number of further steps equal to `plan` that may follow."""
        if self._max_steps == 1:
            return 0
        if self._in_flight and not self.scheduler.returns_quietly(self._in_flight[0]):
            return 0
        if plan.num_drafts:
            more = self.scheduler.repeatable(plan, self._max_steps - 1)
            return self._timer.time_run(plan, self.scheduler.batch.shapes(more)) if more else 0
        return min(self.scheduler.repeatable(plan, self._max_steps - 1), plan.affine_steps - 1)

    def _commit(self, plan: Plan, steps: int) -> None:
        """The awaited steps are over: book them, and process the outputs that returned."""
        now = self.now_ps
        if self._overlap:
            done = self._in_flight.popleft()
            if not done.empty:
                self._books.last_step(done, (*self._in_flight, plan))
            self._return(done, done.end_ps)
            self._repeat(plan, steps - 1)
            if plan.held_ps:
                self._books.held(plan)
            if self._flies(plan):
                self._in_flight.append(plan)
        else:
            done = plan
            self._repeat(plan, steps)
            self._return(done, now)
        self._finished(done, now)

    def _repeat(self, plan: Plan, steps: int) -> None:
        """`plan` computed `steps` times.

        Memory changes as each step is scheduled. With two steps in flight that is before the
        previous step returns, with one after it; the first of `steps` is scheduled already. Steps
        that verify drafts are taken one by one.
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

    def _return(self, plan: Plan, now_ps: int) -> None:
        """Process the outputs of the plan's last step."""
        self._books.returned(plan, now_ps)
        if self._timed is not None:
            self._timed.pass_time(now_ps)
        for seq in self.scheduler.finish(plan):
            self.intake.left(seq, now_ps)

    def _finished(self, plan: Plan, now_ps: int) -> None:
        if self._observer is not None:
            self._observer.finished(self.scheduler, plan, now_ps)

    def _idle(self, plan: Plan) -> Generator[simpy.Event, None, None]:
        """Wait for an arrival."""
        if self._gave_way(plan):
            return
        now = self.now_ps
        self._books.open()
        self._wake = self.env.event()
        yield self._wake
        self._wake = None
        self._books.idled(now, self.now_ps)

    def _gave_way(self, plan: Plan) -> bool:
        """Whether, after a plan without a token, something else can be planned at once. A request
        at the head of the queue that could never start is refused here.
        """
        now = self.now_ps
        if plan.preempted:
            self._finished(plan, now)
            return True
        head = self.scheduler.waiting.head
        watcher, stalled = self._observer, head is not None
        if watcher is not None and watcher.idle(self.scheduler, now, stalled=stalled):
            return True
        if head is not None and self._refuse and not self.scheduler.expects_more:
            refusal = self.scheduler.give_up(head)
            if refusal is None:
                check_stuck(self.scheduler)
                raise InvariantError(f"{head} can never start")
            self.intake.ended(head, now, str(refusal))
            self._books.queue(now)
            return True
        return False
