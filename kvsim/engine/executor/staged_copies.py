"""The stages of a pipeline with a KV connector (vLLM 0.33, v1/engine/core.py
`step_with_batch_queue`, v1/executor/multiproc_executor.py, v1/worker/gpu/model_runner.py).

Each stage has a worker with a thread of its own, which launches steps one after the other. A step
that waits for copies there holds up that thread and the later stages, but not the engine. The
output of a step has the reports of all stages.
"""

from collections.abc import Iterable

import simpy

from kvsim.engine.connectors.offloading.staged import StagedConnector
from kvsim.engine.core import EngineCore
from kvsim.engine.engine import Next
from kvsim.engine.executor.copies import CopyingExecutor
from kvsim.engine.plan import Plan
from kvsim.plumbing.errors import InvariantError
from kvsim.step_time.stages import StageTimes


class CopyingStages(CopyingExecutor):
    """The queue of steps in flight holds empty ones too."""

    def __init__(self, core: EngineCore) -> None:
        super().__init__(core)
        times, connector = core.parts.step_time, self._connector
        if not isinstance(times, StageTimes) or not isinstance(connector, StagedConnector):
            raise InvariantError("stages with copies have step times and copies of each stage")
        self._times, self._copies = times, connector
        self._num_stages = len(times.forms)
        self._launched_ps = [0] * self._num_stages  # when the thread of each stage goes on
        self._stage_ps = [0] * self._num_stages  # when all that was launched there has computed
        self._ready_ps: dict[Plan, int] = {}  # when the output of each step is there
        self._overlaps = core.parts.depth > self._num_stages
        self._schedules = False  # in this iteration
        self._more = 0  # steps that may follow the plan just launched

    # --- the engine's thread --------------------------------------------------------------------

    def begin(self) -> bool:
        self._left, self._more = len(self._scheduler.waiting), 0
        self._schedules = self._has_requests
        if self._schedules:
            self._connector.begin(self._core.now_ps)
        return self._schedules

    def next(self, plan: Plan) -> Next:
        core = self._core
        if not self._schedules:
            return Next.LAND if core.in_flight else Next.REST
        self._left, self._ended = len(self._scheduler.waiting), False
        if self._is_stuck(plan):
            return Next.REST
        self._more = 0 if plan.empty else self._count_repeatable(plan)
        if self._more:
            self.rest_ps = self._connector.idle_ps
            return Next.RUN
        fills = not plan.empty or self._has_requests
        return Next.FILL if fills and len(core.in_flight) < core.steps_ahead else Next.LAND

    def rest(self, plan: Plan) -> Iterable[simpy.Event]:
        core = self._core
        if self._schedules:  # the empty steps in flight return
            left = len(self._scheduler.waiting)
            core.in_flight.append(plan)
            while core.in_flight:
                yield from self.land_oldest()
            if len(self._scheduler.waiting) != left or self._has_news:
                return
        yield from core.idle(plan)

    def filled(self, plan: Plan) -> Iterable[simpy.Event]:
        if plan.empty:
            yield from self._nap()
        yield from self._core.settle()

    def stays(self, plan: Plan) -> bool:
        return self._schedules

    def until_ready(self, oldest: Plan) -> Iterable[simpy.Event]:
        return self._until(self._ready_ps[oldest])

    def land(self, plan: Plan, now_ps: int) -> None:
        del self._ready_ps[plan]
        super().land(plan, now_ps)

    def landed(self, plan: Plan) -> Iterable[simpy.Event]:
        token_ps = self._computed_ps
        if self._more and self._core.now_ps > token_ps:
            self._idled(token_ps, self._core.now_ps)
        elif self._more or (plan.empty and self._has_requests):
            yield from self._nap()

    @property
    def _has_requests(self) -> bool:
        """Whether the engine schedules: there are requests, sequences that no schedule() has named
        as ended, or copies. A request that arrives counts from the next iteration on.
        """
        return self._has_news or self._left > 0

    def _is_stuck(self, plan: Plan) -> bool:
        """Whether only an arrival can change the next schedule(), though requests wait."""
        if not plan.empty or plan.preempted or self._has_news:
            return False
        return len(self._scheduler.waiting) > 0 and all(each.empty for each in self._core.in_flight)

    @property
    def _has_news(self) -> bool:
        return bool(self._goes_on or self._ended)

    # --- one plan alone -------------------------------------------------------------------------

    def _count_repeatable(self, plan: Plan) -> int:
        """Steps that may follow while one plan holds all running sequences, the others in flight
        are empty, and the connector has nothing to do. No sequence finishes with them.
        """
        if not self._leaps or self._overlaps or plan.chunks or plan.stalls:
            return 0
        if self._num_stages > 2:  # it sleeps while the plan computes, too, and then schedules
            return 0
        if self._core.timed is not None or self._core.parts.report_interval_ps is not None:
            return 0
        if not self._is_alone(plan) or any(any(report) for report in self._reports.values()):
            return 0
        self._core.timer.time_alone(plan)
        left = min(seq.output_tokens - seq.num_outputs for seq in self._scheduler.running)
        limit = min(self._core.max_steps, plan.affine_steps, left) - 1
        return self._scheduler.repeatable(plan, limit) if limit > 0 else 0

    def _is_alone(self, plan: Plan) -> bool:
        """Whether the newest plan finds all stages free, and the engine waits for nothing else."""
        now, others = self._core.now_ps, self._core.in_flight
        if len(others) < self._core.steps_ahead or self._connector.journal is not None:
            return False
        if plan.start_ps != now or self._ready_ps[plan] != plan.end_ps:
            return False
        return all(each.empty and self._ready_ps[each] <= now for each in others)

    def repeatable(self, plan: Plan) -> int:
        return self._more

    def overlap(self, steps: int) -> int:
        return 0

    def ran(self, plan: Plan) -> None:
        """After each step the engine slept, as the step scheduled while it computed was empty."""
        steps = plan.steps
        token_ps = plan.start_ps + plan.duration_ps(steps) + self.rest_ps * (steps - 1)
        for each in self._core.in_flight:
            each.start_ps = token_ps
        self._computed_ps = token_ps
        self._scheduler.run_ended(plan)

    # --- the workers ----------------------------------------------------------------------------

    def launch(self, plan: Plan) -> None:
        now = self._core.now_ps
        self._follow_waits(plan, now)
        plan.start_ps = max(plan.start_ps, now)
        if plan.empty:
            self._launch(plan, [0] * self._num_stages, [0] * self._num_stages)
            return
        shape = plan.shape()
        durations_ps = self._times.stage_ps(shape)
        sends_ps = [*self._times.send_ps(shape.num_tokens), 0]
        unheld_ps = self._unheld_end_ps(plan, durations_ps, sends_ps)
        end_ps = self._launch(plan, durations_ps, sends_ps)
        plan.first_ps = max(plan.stall_ps, end_ps - plan.start_ps)
        plan.outside = self._times.outside_domain(shape)
        self._computed_ps = plan.start_ps + plan.first_ps
        self._held_up_ps += end_ps - unheld_ps

    def _token_ps(self) -> int:
        """Time until which the stages but the last wait for tokens of a step that the first one ran
        num_stages before (`StepTimer`).
        """
        flying = self._core.in_flight
        if len(flying) >= self._num_stages and flying[0].continues:
            return flying[0].end_ps
        return 0

    def _unheld_end_ps(self, plan: Plan, durations_ps: list[int], sends_ps: list[int]) -> int:
        """When the step would leave the last stage if no copy held it up."""
        at_ps = max(self._core.now_ps + plan.stall_ps, self._token_ps())
        for stage, stage_ps in enumerate(durations_ps):
            thread_ps = self._launched_ps[stage]
            at_ps = max(at_ps, self._stage_ps[stage], thread_ps) + stage_ps + sends_ps[stage]
        return at_ps

    def _launch(self, plan: Plan, durations_ps: list[int], sends_ps: list[int]) -> int:
        """The workers launch the step, which takes so long on each stage and to the next; returns
        when it leaves the last stage.
        """
        now, token_ps, computes = self._core.now_ps, self._token_ps(), not plan.empty
        poll_ps, empty_poll_ps = self._connector.poll_ps, self._connector.empty_poll_ps
        last = self._num_stages - 1
        polls_ps: list[int] = []
        waits_ps: list[int] = []
        runs_ps: list[tuple[int, int]] = []
        launch_ps, came_ps, ready_ps = now, now + plan.stall_ps, now
        for stage in range(last + 1):
            begin_ps = max(now, self._launched_ps[stage])
            free_ps = self._stage_ps[stage]
            if stage < last:
                free_ps = max(free_ps, token_ps)
            if computes and stage:
                begin_ps, free_ps = max(begin_ps, launch_ps), max(free_ps, came_ps)
            launch_ps = self._copies.launch_on(stage, begin_ps, free_ps)
            waits_ps.append(launch_ps - begin_ps)
            start_ps = max(launch_ps, free_ps)
            if computes:
                start_ps = max(start_ps, came_ps)
            end_ps = self._stage_ps[stage] = start_ps + durations_ps[stage]
            came_ps = end_ps + sends_ps[stage]
            runs_ps.append((start_ps, end_ps))
            self._copies.launched_on(stage, end_ps)
            polls_ps.append(launch_ps + (poll_ps if computes else empty_poll_ps))
            self._launched_ps[stage] = polls_ps[-1]
            ready_ps = max(ready_ps, polls_ps[-1])
        if computes:
            ready_ps = max(ready_ps, end_ps)
            if not self._overlaps:  # its thread waits for the tokens
                self._launched_ps[last] = max(self._launched_ps[last], end_ps)
        self._ready_ps[plan] = max(ready_ps, self._launched_ps[last])
        self._reports[plan] = self._copies.poll_stages(polls_ps)
        if self._connector.journal is not None:
            self._connector.journal.add("wait", waits_ps)
            self._connector.journal.add("runs", runs_ps)
        return end_ps
