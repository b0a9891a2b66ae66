"""Executor of one device with a KV connector: copies run concurrently with the steps, on the same
clock.

One thread of the engine schedules, launches, and processes outputs (vllm/v1/engine/core.py, 0.33).
A step that waits for copies blocks that thread.
"""

from collections.abc import Generator, Iterable

import simpy

from kvsim.engine.connectors.totals import RunTotals
from kvsim.engine.core import EngineCore
from kvsim.engine.engine import Executor, Next
from kvsim.engine.executor.copier import Copier
from kvsim.engine.plan import Plan


class CopyingExecutor(Executor):
    """Launches steps, and submits and polls the connector's copies with each step.

    idles: the current iteration computes nothing, so the engine sleeps at its end.
    """

    def __init__(self, core: EngineCore) -> None:
        super().__init__(core)
        self._copier = Copier(core)
        self._free_ps = 0  # when the thread of the engine is free
        self.idles = False
        self._named = False  # the last schedule() has named sequences that have ended

    # --- the engine's thread --------------------------------------------------------------------

    def begin(self) -> bool:
        self._copier.poll_due()
        self._copier.connector.begin(self._core.now_ps)
        return True

    def next(self, plan: Plan) -> Next:
        core, copier = self._core, self._copier
        copier.left = len(copier.scheduler.waiting)
        self._named, copier.ended = copier.ended, False
        flying = core.in_flight
        if plan.empty and not (flying or copier.goes_on or plan.preempted):
            return Next.REST
        if len(flying) < core.steps_ahead:
            return Next.FILL
        self.idles = plan.empty
        return Next.LAND if plan.empty or (flying and flying[0].empty) else Next.RUN

    def rest(self, plan: Plan) -> Iterable[simpy.Event]:
        core, copier = self._core, self._copier
        if self._named:
            yield from copier.until(self._free_ps)
        self.land(plan, core.now_ps)
        core.finished(plan, core.now_ps)
        if len(copier.scheduler.waiting) == copier.left:  # else one came in the meantime
            yield from core.idle(plan)
        yield from core.settle()

    def filled(self, plan: Plan) -> Iterable[simpy.Event]:
        yield from self._copier.until(self._free_ps)
        if plan.empty:
            yield from self._sleep()
        yield from self._core.settle()

    def until_ready(self, oldest: Plan) -> Iterable[simpy.Event]:
        return self._copier.until(max(self._free_ps, 0 if oldest.empty else oldest.end_ps))

    def stays(self, plan: Plan) -> bool:
        return True

    def landed(self, plan: Plan) -> Iterable[simpy.Event]:
        return self._sleep() if plan.empty else ()

    def _sleep(self) -> Generator[simpy.Event, None, None]:
        """Sleep until the next poll if anything can be scheduled or polled for. If not, process the
        empty steps in flight at once.
        """
        core, copier, scheduler = self._core, self._copier, self._copier.scheduler
        if copier.goes_on or copier.ended or scheduler.running or copier.left:
            yield from copier.nap()
            return
        while core.in_flight and not len(scheduler.waiting):  # else one came in the meantime
            last = core.in_flight.popleft()
            self.land(last, core.now_ps)
            core.finished(last, core.now_ps)

    def rouse(self) -> None:
        self._copier.rouse()

    # --- the worker -----------------------------------------------------------------------------

    def launch(self, plan: Plan) -> None:
        """Launch the step after the copies that it waits for."""
        self._copy_to_host(plan)
        core, copier, now = self._core, self._copier, self._core.now_ps
        copier.follow(plan, now)
        plan.start_ps = max(plan.start_ps, now)
        launch_ps = copier.connector.launch(now, copier.computed_ps)
        self._free_ps = launch_ps
        if plan.empty:
            self._launched(plan, launch_ps, max(launch_ps, copier.computed_ps))
        elif launch_ps > plan.start_ps:
            plan.stalls.append((launch_ps - plan.start_ps, core.scheduler.usage()))
            copier.held_up_ps += launch_ps - plan.start_ps
        if copier.connector.journal is not None:
            copier.connector.journal.add("wait", launch_ps - now)
        if not plan.empty:
            core.timer.time(plan, now, core.in_flight)
            copier.computed_ps = plan.start_ps + plan.first_ps
            self._launched(plan, self._free_ps, copier.computed_ps)

    def _launched(self, plan: Plan, launch_ps: int, end_ps: int) -> None:
        """Submit the copies that follow the step's launch at launch_ps, and poll. The step computes
        until end_ps.
        """
        connector = self._copier.connector
        connector.launched(launch_ps, end_ps)
        self._free_ps = launch_ps + (connector.empty_poll_ps if plan.empty else connector.poll_ps)
        self._copier.poll(plan, launch_ps, self._free_ps)

    # --- what returns ---------------------------------------------------------------------------

    def land(self, plan: Plan, now_ps: int) -> None:
        super().land(plan, now_ps)
        self._copier.landed(plan, now_ps)

    def ran(self, plan: Plan) -> None:
        self._copier.computed_ps = plan.end_ps

    def repeatable(self, plan: Plan) -> int:
        copier = self._copier
        if not copier.is_polled(plan) or copier.reports[plan].jobs:
            return 0
        if any(report.jobs for report in copier.reports.values()):
            return 0
        return super().repeatable(plan)

    def tier_totals(self) -> RunTotals | None:
        return self._copier.totals()

    def close(self) -> None:
        self._copier.close()
