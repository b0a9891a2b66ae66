"""The state that an engine's loop and its executor share."""

from collections import deque
from collections.abc import Generator
from typing import cast

import simpy

from kvsim.engine.books import Books
from kvsim.engine.clock import EngineClock
from kvsim.engine.intake import Intake
from kvsim.engine.moments import PLANS, moment
from kvsim.engine.parts import EngineParts
from kvsim.engine.plan import UNBOUNDED, Plan, StepTimer
from kvsim.engine.run_end import RunEnd
from kvsim.engine.stuck import check_stuck
from kvsim.plumbing.errors import InvariantError


class EngineCore:
    """The clock, the scheduler, the accounting, and the plans in flight of one engine.

    steps_ahead: plans in flight while the engine waits for the oldest. in_flight: plans with
    outputs not yet processed, oldest first; the newest plan may not be in it yet. run_end: end of
    the current run of steps, if it can be cut short. wake: the event that ends an idle time.
    """

    def __init__(self, env: EngineClock, parts: EngineParts) -> None:
        self.env, self.parts = env, parts
        scheduler = self.scheduler = parts.scheduler
        self.timer = StepTimer(parts.step_time)
        self.steps_ahead = parts.depth - 1
        self.timed, self.routed = scheduler.allocator.timed, parts.routed
        self.max_steps = UNBOUNDED if parts.max_steps is None else parts.max_steps
        self.intake = Intake(scheduler, parts.recorder, parts.on_left, refuse=parts.refuse)
        self.books = Books(scheduler, parts.recorder)
        self.observer = parts.observer
        self.in_flight: deque[Plan] = deque()
        self.run_end: RunEnd | None = None
        self.wake: simpy.Event | None = None
        self.stopped = False

    @property
    def now_ps(self) -> int:
        """The simulated time in ps. simpy's clock only gets integers in this program."""
        return cast("int", self.env.now)

    def cut(self) -> None:
        """End the current run of steps after its current step, or end the idle time now."""
        if self.run_end is not None:
            self.run_end.cut(self.now_ps)
        elif self.wake is not None and not self.wake.triggered:
            self.wake.succeed()

    def settle(self) -> Generator[simpy.Event, None, None]:
        """Process all other events of this instant before the next plan, if a router serves several
        engines.
        """
        if self.routed and self.env.peek() == self.env.now:
            yield moment(self.env, 0, PLANS)

    def finished(self, plan: Plan, now_ps: int) -> None:
        """Notify the observer that the outputs of `plan` are processed."""
        if self.observer is not None:
            self.observer.finished(self.scheduler, plan, now_ps)

    # --- without a step -------------------------------------------------------------------------

    def idle(self, plan: Plan) -> Generator[simpy.Event, None, None]:
        """After an empty plan, wait for an arrival, unless another plan is possible at once."""
        if self.gave_way(plan):
            return
        yield from self.sleep(self.env.event())

    def sleep(self, wake: simpy.Event) -> Generator[simpy.Event, None, None]:
        """Wait for `wake`, which `cut` triggers too; no step computes until then."""
        now = self.now_ps
        self.books.open()
        self.wake = wake
        yield wake
        self.wake = None
        self.books.idled(now, self.now_ps)

    def gave_way(self, plan: Plan) -> bool:
        """Whether another plan is possible at once after `plan`, which computes no token.

        Refuses a request at the head of the queue that can never start.
        """
        now = self.now_ps
        if plan.preempted:
            self.finished(plan, now)
            return True
        head = self.scheduler.waiting.head
        watcher, stalled = self.observer, head is not None
        if watcher is not None and watcher.idle(self.scheduler, now, stalled=stalled):
            return True
        if head is not None and self.parts.refuse and not self.scheduler.expects_more:
            refusal = self.scheduler.give_up(head)
            if refusal is None:
                check_stuck(self.scheduler)
                raise InvariantError(f"{head} can never start")
            self.intake.ended(head, now, str(refusal))
            self.books.queue(now)
            return True
        return False
