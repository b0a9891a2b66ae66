"""A device with a KV connector: copies run concurrently with the steps, on the same clock.

One thread of the engine schedules, launches, and processes outputs (vllm/v1/engine/core.py, 0.33).
It is held up where a step waits for copies. An iteration without tokens polls the copies too; while
a copy is in flight the engine goes on, one poll every `idle_ps`.
"""

from collections.abc import Generator, Iterable

import simpy

from kvsim.engine.connectors.connector import Connector, Report
from kvsim.engine.connectors.totals import RunTotals
from kvsim.engine.core import EngineCore
from kvsim.engine.engine import Executor, Next
from kvsim.engine.executor.load_waits import LoadWaits
from kvsim.engine.plan import Plan
from kvsim.engine.run_end import Naps, Pause
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.tier_books import TierBooks
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div

LOAD_FAILED = "its KV could not be loaded (kv_load_failure_policy = fail)"


class CopyingExecutor(Executor):
    """Launches steps, and asks for copies and polls them with each.

    idles: the current iteration has nothing to compute, and sleeps at its end.
    """

    def __init__(self, core: EngineCore) -> None:
        super().__init__(core)
        scheduler, parts = core.scheduler, core.parts
        if not isinstance(scheduler, ContinuousScheduler):
            raise InvariantError(f"{type(scheduler).__name__} has no connector")
        self._scheduler = scheduler
        self._connection = scheduler.connection
        self._connector: Connector = scheduler.connection.connector
        self._reports: dict[Plan, Report] = {}
        self._unpolled: dict[Plan, int] = {}  # launches still ahead, and when they will be polled
        self._free_ps = 0  # when the thread of the engine goes on
        self.idles = False
        self._computed_ps = 0  # when all that was launched has computed
        self._naps: Naps | None = None  # while nothing is polled
        self._news = False  # of the iteration under way: its plan or a report changed something
        self._left = 0  # waiting sequences that the last schedule() left; later ones came since
        self._ended = False  # sequences have ended that no schedule() has named to the workers yet
        self._named = False  # the last schedule() has named some
        self._leaps = parts.max_steps != 1 and parts.observer is None
        self._connector.on_news(self.rouse)
        self._held_up_ps = 0
        self._tier_books: TierBooks | None = None
        if self._connector.totals():
            self._tier_books = TierBooks(parts.recorder, parts.step_time)
        self._waits = LoadWaits(self._connection, self._tier_books)

    # --- the engine's thread --------------------------------------------------------------------

    def begin(self) -> bool:
        self._poll_due()
        self._connector.begin(self._core.now_ps)
        return True

    def next(self, plan: Plan) -> Next:
        core = self._core
        self._left = len(self._scheduler.waiting)
        self._named, self._ended = self._ended, False
        flying = core.in_flight
        if plan.empty and not (flying or self._goes_on or plan.preempted):
            return Next.REST
        if len(flying) < core.steps_ahead:
            return Next.FILL
        self.idles = plan.empty
        return Next.LAND if plan.empty or (flying and flying[0].empty) else Next.RUN

    def rest(self, plan: Plan) -> Iterable[simpy.Event]:
        core = self._core
        if self._named:
            yield from self._until(self._free_ps)
        self.land(plan, core.now_ps)
        core.finished(plan, core.now_ps)
        if len(self._scheduler.waiting) == self._left:  # else one came in the meantime
            yield from core.idle(plan)
        yield from core.settle()

    def filled(self, plan: Plan) -> Iterable[simpy.Event]:
        yield from self._until(self._free_ps)
        if plan.empty:
            yield from self._sleep()
        yield from self._core.settle()

    def until_ready(self, oldest: Plan) -> Iterable[simpy.Event]:
        return self._until(max(self._free_ps, 0 if oldest.empty else oldest.end_ps))

    def stays(self, plan: Plan) -> bool:
        return True

    def landed(self, plan: Plan) -> Iterable[simpy.Event]:
        return self._sleep() if plan.empty else ()

    @property
    def _goes_on(self) -> bool:
        """Whether there is something to poll for, or to schedule without an arrival."""
        scheduler, connection = self._scheduler, self._connection
        waits = connection.queues.holding or connection.kept or connection.put_off
        return bool(waits or scheduler.running or scheduler.admission.skips or self._connector.busy)

    def _sleep(self) -> Generator[simpy.Event, None, None]:
        """Between two polls, as long as there is anything to schedule or sequences have ended; else
        empty steps in flight return at once.
        """
        core, scheduler = self._core, self._scheduler
        if self._goes_on or self._ended or scheduler.running or self._left:
            yield from self._nap()
            return
        while core.in_flight and not len(scheduler.waiting):  # else one came in the meantime
            last = core.in_flight.popleft()
            self.land(last, core.now_ps)
            core.finished(last, core.now_ps)

    def _nap(self) -> Generator[simpy.Event, None, None]:
        """Sleep until the next poll that may find something, or until a message or an arrival.

        Polls without a result are left out, unless there is an observer.
        """
        self._poll_due()
        now, connector = self._core.now_ps, self._connector
        quiet = self._quiet and not self._scheduler.running
        steps = any(not plan.empty for plan in self._core.in_flight)
        rests = self._quiet and not (steps or connector.busy or self._connection.kept)
        if quiet and rests:
            self._connection.queues.check_deadlock()
        requests = len(self._scheduler.running) + len(self._scheduler.waiting)
        circles = rests if requests else connector.circles
        if circles and self._core.env.only_circles:
            self._connection.check_stuck()
            self._core.stopped = True
            return
        idle_ps, count = connector.idle_ps, 1
        if self._leaps and connector.journal is None and quiet:
            count = max(1, ceil_div(connector.quiet_until(now) - now, idle_ps))
        if count == 1:
            self._core.env.num_circling += int(circles)
            yield from self._until(now + idle_ps)
            self._core.env.num_circling -= int(circles)
            return
        self._core.books.open()
        self._naps = naps = Naps(self._core.env, now, idle_ps, count)
        yield naps
        self._naps = None
        naps.callbacks = []  # for when it comes again
        self._idled(now, self._core.now_ps)

    @property
    def _quiet(self) -> bool:
        """Whether only the connector, or an arrival, can change what the next schedule() does."""
        connection = self._connection
        if self._news or connection.put_off or connection.loads:
            return False
        return not any(any(report) for report in self._reports.values())

    def rouse(self) -> None:
        """Something came that the next poll may find, or a request."""
        if self._naps is not None:
            self._naps.cut(self._core.now_ps)

    def _until(self, end_ps: int) -> Generator[simpy.Event, None, None]:
        """Let time pass; what of it no step computes in is booked as idle."""
        now = self._core.now_ps
        if end_ps <= now:
            return
        self._core.books.open()
        yield Pause(self._core.env, end_ps - now)
        self._idled(now, end_ps)

    def _idled(self, begin_ps: int, end_ps: int) -> None:
        """Time has passed; what of it no step computed in is booked."""
        idle_ps = max(begin_ps, self._computed_ps)
        if idle_ps < end_ps:
            self._core.books.idled(idle_ps, end_ps)

    # --- the worker -----------------------------------------------------------------------------

    def tier_totals(self) -> RunTotals | None:
        scheduler, tiers = self._scheduler, self._connector.totals()
        if not tiers or self._tier_books is None:
            return None
        return RunTotals(
            tiers,
            self._connection.hit_tokens,
            scheduler.awaited_hit_tokens,
            self._waits.num_waits,
            self._waits.wait_ps,
            self._held_up_ps,
            self._tier_books.storage_hit_tokens,
            self._tier_books.recompute_ps,
        )

    def _follow(self, plan: Plan, now_ps: int) -> None:
        """`plan` was scheduled at now_ps."""
        self._news = bool(plan.admitted or plan.preempted or plan.failed or plan.left)
        self._waits.follow(plan, now_ps)

    def launch(self, plan: Plan) -> None:
        """Copies that belong before the step hold it up."""
        self._copy_to_host(plan)
        core, now = self._core, self._core.now_ps
        self._follow(plan, now)
        plan.start_ps = max(plan.start_ps, now)
        launch_ps = self._connector.launch(now, self._computed_ps)
        self._free_ps = launch_ps
        if plan.empty:
            self._launched(plan, launch_ps, max(launch_ps, self._computed_ps))
        elif launch_ps > plan.start_ps:
            plan.stalls.append((launch_ps - plan.start_ps, self._scheduler.usage()))
            self._held_up_ps += launch_ps - plan.start_ps
        if self._connector.journal is not None:
            self._connector.journal.add("wait", launch_ps - now)
        if not plan.empty:
            core.timer.time(plan, now, core.in_flight)
            self._computed_ps = plan.start_ps + plan.first_ps
            self._launched(plan, self._free_ps, self._computed_ps)

    def _launched(self, plan: Plan, launch_ps: int, end_ps: int) -> None:
        """The step computes until end_ps; the copies are asked for right after its launch."""
        connector, now = self._connector, self._core.now_ps
        connector.launched(launch_ps, end_ps)
        self._free_ps = launch_ps + (connector.empty_poll_ps if plan.empty else connector.poll_ps)
        if not connector.hears or launch_ps == now:
            self._reports[plan] = connector.poll(self._free_ps)
            return
        self._unpolled[plan] = self._free_ps  # messages come while the launch waits
        wait = self._core.env.timeout(self._free_ps - now)
        wait.callbacks.append(lambda _: self._poll_due())

    def _poll_due(self) -> None:
        """Poll for launches that have waited until now."""
        now = self._core.now_ps
        for plan in [plan for plan, at_ps in self._unpolled.items() if at_ps <= now]:
            self._poll_late(plan)

    def _poll_late(self, plan: Plan) -> None:
        self._reports[plan] = self._connector.poll(self._unpolled.pop(plan))
        if self._core.observer is not None:
            self._core.observer.polled(self._scheduler, plan)

    # --- what returns ---------------------------------------------------------------------------

    def land(self, plan: Plan, now_ps: int) -> None:
        super().land(plan, now_ps)
        if plan in self._unpolled:
            self._poll_late(plan)
        report = self._reports.pop(plan)
        failed = self._connection.returned(report, now_ps)
        self._news = self._news or any(report) or not plan.empty
        self._ended = self._ended or bool(plan.finishing or failed)
        for seq in failed:
            self._waits.ended(seq)
            self._core.intake.ended(seq, now_ps, LOAD_FAILED)

    def ran(self, plan: Plan) -> None:
        self._computed_ps = plan.end_ps

    def repeatable(self, plan: Plan) -> int:
        if plan in self._unpolled or self._reports[plan].jobs:
            return 0
        if any(report.jobs for report in self._reports.values()):
            return 0
        return super().repeatable(plan)

    def close(self) -> None:
        self._connector.close(self._core.now_ps)
