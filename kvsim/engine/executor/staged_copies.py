"""Executor of pipeline stages with a KV connector (vLLM 0.33, v1/engine/core.py
`step_with_batch_queue`, v1/executor/multiproc_executor.py, v1/worker/gpu/model_runner.py).

A step that waits for copies blocks the workers of its stages (stage_workers.py), but not the
engine.
"""

from collections.abc import Iterable

import simpy

from kvsim.engine.connectors.totals import RunTotals
from kvsim.engine.core import EngineCore
from kvsim.engine.engine import Executor, Next
from kvsim.engine.executor.copier import Copier
from kvsim.engine.executor.stage_workers import StageWorkers
from kvsim.engine.plan import Plan
from kvsim.engine.staged_books import StagedBooks
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.step_time.stages import StageTimes


class CopyingStages(Executor):
    """Launches steps over pipeline stages with a connector; empty steps are enqueued too, as in
    vLLM's batch queue.
    """

    def __init__(self, core: EngineCore) -> None:
        super().__init__(core)
        copier = self._copier = Copier(core)
        times, connector = core.parts.step_time, copier.connector
        if not isinstance(times, StageTimes):
            raise InvariantError("stages with copies have step times of each stage")
        if connector.stage_copies is None:
            raise InputError(
                f"{type(connector).__name__} has no copies of each pipeline stage",
                where="tier",
                remedy="leave STAGES out of `serves` of its options, or set stage_copies",
            )
        self._times, self._num_stages = times, len(times.forms)
        self._ready_ps: dict[Plan, int] = {}  # when the output of each step is there
        self._overlaps = core.parts.depth > self._num_stages
        self._workers = StageWorkers(
            core.in_flight, connector, self._num_stages, overlaps=self._overlaps
        )
        core.books = StagedBooks(core)
        self._schedules = False  # in this iteration
        self._more = 0  # steps that may follow the plan just launched

    # --- the engine's thread --------------------------------------------------------------------

    def begin(self) -> bool:
        self._copier.left, self._more = len(self._copier.scheduler.waiting), 0
        self._schedules = self._has_requests
        if self._schedules:
            self._copier.connector.begin(self._core.now_ps)
        return self._schedules

    def next(self, plan: Plan) -> Next:
        core = self._core
        if not self._schedules:
            return Next.LAND if core.in_flight else Next.REST
        self._copier.left, self._copier.ended = len(self._copier.scheduler.waiting), False
        if self._is_stuck(plan):
            return Next.REST
        self._more = 0 if plan.empty else self._count_repeatable(plan)
        if self._more:
            self.rest_ps = self._copier.connector.idle_ps
            return Next.RUN
        fills = not plan.empty or self._has_requests
        return Next.FILL if fills and len(core.in_flight) < core.steps_ahead else Next.LAND

    def rest(self, plan: Plan) -> Iterable[simpy.Event]:
        core = self._core
        if self._schedules:  # the empty steps in flight return
            left = len(self._copier.scheduler.waiting)
            core.in_flight.append(plan)
            while core.in_flight:
                yield from self.land_oldest()
            if len(self._copier.scheduler.waiting) != left or self._has_news:
                return
        yield from core.idle(plan)

    def filled(self, plan: Plan) -> Iterable[simpy.Event]:
        if plan.empty:
            yield from self._copier.nap()
        yield from self._core.settle()

    def stays(self, plan: Plan) -> bool:
        return self._schedules

    def until_ready(self, oldest: Plan) -> Iterable[simpy.Event]:
        return self._copier.until(self._ready_ps[oldest])

    def land(self, plan: Plan, now_ps: int) -> None:
        del self._ready_ps[plan]
        super().land(plan, now_ps)
        self._copier.landed(plan, now_ps)

    def landed(self, plan: Plan) -> Iterable[simpy.Event]:
        token_ps = self._copier.computed_ps
        if self._more and self._core.now_ps > token_ps:
            self._copier.idled(token_ps, self._core.now_ps)
        elif self._more or (plan.empty and self._has_requests):
            yield from self._copier.nap()

    @property
    def _has_requests(self) -> bool:
        """Whether the engine calls schedule(): requests wait or run, copies are in flight, or
        sequences ended that the workers have not heard of.

        A request that arrives counts from the next iteration on.
        """
        return self._has_news or self._copier.left > 0

    def _is_stuck(self, plan: Plan) -> bool:
        """Whether requests wait, and only an arrival can change the next schedule()."""
        if not plan.empty or plan.preempted or self._has_news:
            return False
        return len(self._copier.scheduler.waiting) > 0 and all(
            each.empty for each in self._core.in_flight
        )

    @property
    def _has_news(self) -> bool:
        return bool(self._copier.goes_on or self._copier.ended)

    # --- one plan alone -------------------------------------------------------------------------

    def _count_repeatable(self, plan: Plan) -> int:
        """Number of further steps equal to `plan`, which holds all running sequences, while the
        other steps in flight are empty and the connector is idle.

        No sequence finishes in these steps.
        """
        if not self._copier.leaps or self._overlaps or plan.chunks or plan.stalls:
            return 0
        if self._num_stages > 2:  # it sleeps while the plan computes, too, and then schedules
            return 0
        if self._core.timed is not None or self._core.parts.report_interval_ps is not None:
            return 0
        if not self._is_alone(plan) or any(any(report) for report in self._copier.reports.values()):
            return 0
        self._core.timer.time_alone(plan)
        left = min(seq.output_tokens - seq.num_outputs for seq in self._copier.scheduler.running)
        limit = min(self._core.max_steps, plan.affine_steps, left) - 1
        return self._copier.scheduler.repeatable(plan, limit) if limit > 0 else 0

    def _is_alone(self, plan: Plan) -> bool:
        """Whether all stages are free when `plan`, the newest, starts, and the engine waits for
        nothing else.
        """
        now, others = self._core.now_ps, self._core.in_flight
        if len(others) < self._core.steps_ahead or self._copier.connector.journal is not None:
            return False
        if plan.start_ps != now or self._ready_ps[plan] != plan.end_ps:
            return False
        return all(each.empty and self._ready_ps[each] <= now for each in others)

    def repeatable(self, plan: Plan) -> int:
        return self._more

    def overlap(self, steps: int) -> int:
        return 0

    def ran(self, plan: Plan) -> None:
        """Set the times after a run of `plan`: the engine slept after each step, as the step
        scheduled meanwhile was empty.
        """
        steps = plan.steps
        token_ps = plan.start_ps + plan.duration_ps(steps) + self.rest_ps * (steps - 1)
        for each in self._core.in_flight:
            each.start_ps = token_ps
        self._copier.computed_ps = token_ps
        self._copier.scheduler.run_ended(plan)

    # --- the workers ----------------------------------------------------------------------------

    def launch(self, plan: Plan) -> None:
        now = self._core.now_ps
        self._copier.follow(plan, now)
        plan.start_ps = max(plan.start_ps, now)
        if plan.empty:
            idle = [0] * self._num_stages
            launched = self._workers.launch(plan, now, idle, idle)
        else:
            shape = plan.shape()
            durations_ps = self._times.stage_ps(shape)
            sends_ps = [*self._times.send_ps(shape.num_tokens), 0]
            unheld_ps = self._workers.unheld_end_ps(plan, now, durations_ps, sends_ps)
            launched = self._workers.launch(plan, now, durations_ps, sends_ps)
            plan.first_ps = max(plan.stall_ps, launched.end_ps - plan.start_ps)
            plan.outside = self._times.outside_domain(shape)
            self._copier.computed_ps = plan.start_ps + plan.first_ps
            self._copier.held_up_ps += launched.end_ps - unheld_ps
        self._ready_ps[plan], self._copier.reports[plan] = launched.ready_ps, launched.report

    # --- around the loop ------------------------------------------------------------------------

    def rouse(self) -> None:
        self._copier.rouse()

    def tier_totals(self) -> RunTotals | None:
        return self._copier.totals()

    def close(self) -> None:
        self._copier.close()
