"""Drives the worker half of a KV connector: when its copies are submitted and polled
(vllm/v1/engine/core.py, 0.33).

An iteration without tokens polls the copies too. While a copy is in flight the engine does not
block for an arrival: it polls every `idle_ps`.
"""

from collections.abc import Generator

import simpy

from kvsim.engine.connectors.connector import Connector, Report
from kvsim.engine.connectors.totals import RunTotals
from kvsim.engine.core import EngineCore
from kvsim.engine.executor.load_waits import LoadWaits
from kvsim.engine.plan import Plan
from kvsim.engine.run_end import Naps, Pause
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.tier_books import TierBooks
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div

LOAD_FAILED = "its KV could not be loaded (kv_load_failure_policy = fail)"


class Copier:
    """The copies of one engine, and its polls for finished ones.

    reports: result of the poll of each plan in flight. computed_ps: when all launched steps have
    computed. held_up_ps: total time for which steps waited for copies. left: length of the waiting
    queue after the last schedule(). ended: sequences have ended since the last schedule(), which
    the workers have not heard of. leaps: polls without a result may be skipped.
    """

    def __init__(self, core: EngineCore) -> None:
        scheduler, parts = core.scheduler, core.parts
        if not isinstance(scheduler, ContinuousScheduler):
            raise InvariantError(f"{type(scheduler).__name__} has no connector")
        self._core, self.scheduler = core, scheduler
        self.connection = scheduler.connection
        self.connector: Connector = scheduler.connection.connector
        self.reports: dict[Plan, Report] = {}
        self._unpolled: dict[Plan, int] = {}  # launches still ahead, and when they will be polled
        self.computed_ps = self.held_up_ps = self.left = 0
        self.ended = False
        self._naps: Naps | None = None  # while nothing is polled
        self._news = False  # the current plan or a report changed something
        self.leaps = parts.max_steps != 1 and parts.observer is None
        self.connector.on_news(self.rouse)
        self._tier_books: TierBooks | None = None
        if self.connector.totals():
            self._tier_books = TierBooks(parts.recorder, parts.step_time)
        self._waits = LoadWaits(self.connection, self._tier_books)

    # --- the engine's thread --------------------------------------------------------------------

    @property
    def goes_on(self) -> bool:
        """Whether the engine must iterate without an arrival: to poll copies, or to schedule."""
        scheduler, connection = self.scheduler, self.connection
        waits = connection.queues.holding or connection.kept or connection.put_off
        return bool(waits or scheduler.running or scheduler.admission.skips or self.connector.busy)

    def nap(self) -> Generator[simpy.Event, None, None]:
        """Sleep until the next poll that may find something, or until a message or an arrival.

        Without an observer several polls without a result are one sleep.
        """
        self.poll_due()
        now, connector, connection = self._core.now_ps, self.connector, self.connection
        quiet = self._quiet and not self.scheduler.running
        steps = any(not plan.empty for plan in self._core.in_flight)
        rests = self._quiet and not (steps or connector.busy or connection.kept)
        if quiet and rests:
            connection.queues.check_deadlock()
        requests = len(self.scheduler.running) + len(self.scheduler.waiting)
        circles = rests if requests else connector.circles
        if circles and self._core.env.only_circles:
            connection.check_stuck()
            self._core.stopped = True
            return
        idle_ps, count = connector.idle_ps, 1
        if self.leaps and connector.journal is None and quiet:
            count = max(1, ceil_div(connector.quiet_until(now) - now, idle_ps))
        if count == 1:
            self._core.env.num_circling += int(circles)
            yield from self.until(now + idle_ps)
            self._core.env.num_circling -= int(circles)
            return
        self._core.books.open()
        self._naps = naps = Naps(self._core.env, now, idle_ps, count)
        yield naps
        self._naps = None
        naps.callbacks = []  # for when it comes again
        self.idled(now, self._core.now_ps)

    @property
    def _quiet(self) -> bool:
        """Whether the next schedule() can differ only through the connector or an arrival."""
        connection = self.connection
        if self._news or connection.put_off or connection.loads:
            return False
        return not any(any(report) for report in self.reports.values())

    def rouse(self) -> None:
        """A request arrived, or a message that the next poll may find: end the sleep after its
        current poll interval.
        """
        if self._naps is not None:
            self._naps.cut(self._core.now_ps)

    def until(self, end_ps: int) -> Generator[simpy.Event, None, None]:
        """Sleep until end_ps; the part in which no step computes is recorded as idle."""
        now = self._core.now_ps
        if end_ps <= now:
            return
        self._core.books.open()
        yield Pause(self._core.env, end_ps - now)
        self.idled(now, end_ps)

    def idled(self, begin_ps: int, end_ps: int) -> None:
        """Record the part of begin_ps to end_ps in which no step computed as idle."""
        idle_ps = max(begin_ps, self.computed_ps)
        if idle_ps < end_ps:
            self._core.books.idled(idle_ps, end_ps)

    # --- a step ---------------------------------------------------------------------------------

    def follow(self, plan: Plan, now_ps: int) -> None:
        """Note what `plan`, scheduled at now_ps, changed, and which sequences it makes wait for
        loads.
        """
        self._news = bool(plan.admitted or plan.preempted or plan.failed or plan.left)
        self._waits.follow(plan, now_ps)

    def poll(self, plan: Plan, launch_ps: int, poll_ps: int) -> None:
        """Poll for finished copies at poll_ps, after the launch of `plan` at launch_ps.

        If the launch waits and the connector receives messages, the poll happens later, at poll_ps.
        """
        now = self._core.now_ps
        if not self.connector.hears or launch_ps == now:
            self.reports[plan] = self.connector.poll(poll_ps)
            return
        self._unpolled[plan] = poll_ps
        wait = self._core.env.timeout(poll_ps - now)
        wait.callbacks.append(lambda _: self.poll_due())

    def poll_due(self) -> None:
        """Make the polls that are due by now, of launches that waited."""
        now = self._core.now_ps
        for plan in [plan for plan, at_ps in self._unpolled.items() if at_ps <= now]:
            self._poll_late(plan)

    def _poll_late(self, plan: Plan) -> None:
        self.reports[plan] = self.connector.poll(self._unpolled.pop(plan))
        if self._core.observer is not None:
            self._core.observer.polled(self.scheduler, plan)

    def is_polled(self, plan: Plan) -> bool:
        """Whether the poll after the launch of `plan`, in flight, has happened."""
        return plan not in self._unpolled

    def landed(self, plan: Plan, now_ps: int) -> None:
        """The outputs of `plan` were processed: process the connector's report of that step."""
        if plan in self._unpolled:
            self._poll_late(plan)
        report = self.reports.pop(plan)
        failed = self.connection.returned(report, now_ps)
        self._news = self._news or any(report) or not plan.empty
        self.ended = self.ended or bool(plan.finishing or failed)
        for seq in failed:
            self._waits.ended(seq)
            self._core.intake.ended(seq, now_ps, LOAD_FAILED)

    def totals(self) -> RunTotals | None:
        """See `Executor.tier_totals`."""
        tiers = self.connector.totals()
        if not tiers or self._tier_books is None:
            return None
        return RunTotals(
            tiers,
            self.connection.hit_tokens,
            self.scheduler.awaited_hit_tokens,
            self._waits.num_waits,
            self._waits.wait_ps,
            self.held_up_ps,
            self._tier_books.storage_hit_tokens,
            self._tier_books.recompute_ps,
        )

    def close(self) -> None:
        """Close the connector when the engine has stopped."""
        self.connector.close(self._core.now_ps)
