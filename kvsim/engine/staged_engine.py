"""The engine with a KV connector over the stages of a pipeline (vLLM 0.33, v1/engine/core.py
`step_with_batch_queue`, v1/executor/multiproc_executor.py, v1/worker/gpu/model_runner.py).

Each stage has a worker with a thread of its own, which launches steps one after the other. A step
that waits for copies there holds up that thread and the later stages, but not the engine. The
output of a step has the reports of all stages.
"""

from collections.abc import Generator

import simpy

from kvsim.engine.clock import EngineClock
from kvsim.engine.connected_engine import ConnectedEngine
from kvsim.engine.connectors.offloading.staged import StagedConnector
from kvsim.engine.parts import EngineParts
from kvsim.engine.plan import Plan
from kvsim.engine.run_end import SpacedRunEnd
from kvsim.plumbing.errors import InvariantError
from kvsim.step_time.stages import StageTimes


class StagedEngine(ConnectedEngine):
    """The queue of steps in flight holds empty ones too."""

    def __init__(self, env: EngineClock, parts: EngineParts) -> None:
        times, connection = parts.step_time, getattr(parts.scheduler, "connection", None)
        connector = getattr(connection, "connector", None)
        if not isinstance(times, StageTimes) or not isinstance(connector, StagedConnector):
            raise InvariantError("an engine over stages has step times and copies of each stage")
        self._times, self._copies = times, connector
        self._num_stages = len(times.forms)
        self._launched_ps = [0] * self._num_stages  # when the thread of each stage goes on
        self._stage_ps = [0] * self._num_stages  # when all that was launched there has computed
        self._ready_ps: dict[Plan, int] = {}  # when the output of each step is there
        self._overlaps = parts.depth > self._num_stages
        super().__init__(env, parts)

    def _run(self) -> Generator[simpy.Event, None, None]:
        in_flight = self._in_flight
        while not self.stopped:
            computes, self._left = False, len(self.scheduler.waiting)
            if self._has_requests:
                self._connector.begin(self.now_ps)
                plan = self._plan()
                self._left, self._ended = len(self.scheduler.waiting), False
                in_flight.append(plan)
                computes = not plan.empty
                if self._is_stuck(plan):
                    yield from self._empty(plan)
                    continue
                more = self._repeatable(plan) if computes else 0
                if more:
                    yield from self._run_alone(plan, 1 + more)
                    continue
                if len(in_flight) <= self._behind and (computes or self._has_requests):
                    if not computes:
                        yield from self._nap()
                    if self._routed:
                        yield from self._settle()
                    continue
            if not in_flight:
                yield from self._idle(Plan())
                continue
            yield from self._take_output()
            if not computes and self._has_requests:
                yield from self._nap()
            if self._routed:
                yield from self._settle()
        self._connector.close(self.now_ps)

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
        return len(self.scheduler.waiting) > 0 and all(each.empty for each in self._in_flight)

    def _empty(self, plan: Plan) -> Generator[simpy.Event, None, None]:
        """Take the empty steps in flight out, and wait for an arrival."""
        left = len(self.scheduler.waiting)
        while self._in_flight:
            yield from self._take_output()
        if len(self.scheduler.waiting) == left and not self._has_news:
            yield from self._idle(plan)

    @property
    def _has_news(self) -> bool:
        return bool(self._goes_on or self._ended)

    def _take_output(self) -> Generator[simpy.Event, None, None]:
        """Wait for the output of the oldest step in flight, and process it."""
        oldest = self._in_flight.popleft()
        self.idles = oldest.empty
        self._books.open()
        yield from self._until(self._ready_ps.pop(oldest))
        if not oldest.empty:
            self._books.last_step(oldest, tuple(self._in_flight))
        self._return(oldest, self.now_ps)
        self._finished(oldest, self.now_ps)

    # --- one plan alone -------------------------------------------------------------------------

    def _repeatable(self, plan: Plan) -> int:
        """Steps that may follow while one plan holds all running sequences, the others in flight
        are empty, and the connector has nothing to do. No sequence finishes with them.
        """
        if not self._leaps or self._overlaps or plan.chunks or plan.stalls:
            return 0
        if self._num_stages > 2:  # it sleeps while the plan computes, too, and then schedules
            return 0
        if self._timed is not None or self._report_interval_ps is not None:
            return 0
        if not self._is_alone(plan) or any(any(report) for report in self._reports.values()):
            return 0
        self._timer.time_alone(plan)
        left = min(seq.output_tokens - seq.num_outputs for seq in self.scheduler.running)
        limit = min(self._max_steps, plan.affine_steps, left) - 1
        return self.scheduler.repeatable(plan, limit) if limit > 0 else 0

    def _is_alone(self, plan: Plan) -> bool:
        """Whether the newest plan finds all stages free, and the engine waits for nothing else."""
        now, others = self.now_ps, [each for each in self._in_flight if each is not plan]
        if len(others) < self._behind or self._connector.journal is not None:
            return False
        if plan.start_ps != now or self._ready_ps[plan] != plan.end_ps:
            return False
        return all(each.empty and self._ready_ps[each] <= now for each in others)

    def _run_alone(self, plan: Plan, steps: int) -> Generator[simpy.Event, None, None]:
        """Run `plan` for as many steps, or fewer if something arrives. After each the engine
        sleeps, as the step scheduled while it computed is empty.
        """
        books, scheduler, idle_ps = self._books, self.scheduler, self._connector.idle_ps
        books.open()
        end = SpacedRunEnd(self.env, plan, steps, idle_ps, self.now_ps)
        self._run_end = end
        yield end
        self._run_end, end.callbacks = None, []
        token_ps = start_ps = plan.start_ps
        for step in range(end.steps):
            if step:
                books.idled(token_ps, start_ps)
                scheduler.repeat(plan, 1)
                books.scheduled(None)
            end_ps = start_ps + plan.first_ps + plan.growth_ps * step
            books.spaced(plan, start_ps, end_ps - start_ps, token_ps)
            token_ps, start_ps = end_ps, end_ps + idle_ps
        books.pause(scheduler.running, token_ps)
        self._in_flight.remove(plan)
        for each in self._in_flight:
            each.start_ps = token_ps
        del self._ready_ps[plan]
        self._computed_ps = token_ps
        scheduler.run_ended(plan)
        self._return(plan, token_ps)
        if self.now_ps == token_ps:
            yield from self._nap()
        else:
            self._idled(token_ps, self.now_ps)
        if self._routed:
            yield from self._settle()

    # --- the workers ----------------------------------------------------------------------------

    def _copy(self, plan: Plan) -> None:
        now = self.now_ps
        self._follow_waits(plan, now)
        plan.start_ps = max(plan.start_ps, now)
        if plan.empty:
            self._launch(plan, [0] * self._num_stages, [0] * self._num_stages)

    def _time(self, plan: Plan) -> None:
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
        flying = self._in_flight
        if len(flying) >= self._num_stages and flying[0].continues:
            return flying[0].end_ps
        return 0

    def _unheld_end_ps(self, plan: Plan, durations_ps: list[int], sends_ps: list[int]) -> int:
        """When the step would leave the last stage if no copy held it up."""
        at_ps = max(self.now_ps + plan.stall_ps, self._token_ps())
        for stage, stage_ps in enumerate(durations_ps):
            thread_ps = self._launched_ps[stage]
            at_ps = max(at_ps, self._stage_ps[stage], thread_ps) + stage_ps + sends_ps[stage]
        return at_ps

    def _launch(self, plan: Plan, durations_ps: list[int], sends_ps: list[int]) -> int:
        """The workers launch the step, which takes so long on each stage and to the next; returns
        when it leaves the last stage.
        """
        now, token_ps, computes = self.now_ps, self._token_ps(), not plan.empty
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
