"""The workers of a pipeline's stages, one thread each (vLLM 0.33,
v1/executor/multiproc_executor.py, v1/worker/gpu/model_runner.py).

A thread launches steps one after the other. A step that waits for copies blocks that thread and the
later stages. The output of a step carries the copy reports of all stages.
"""

from collections import deque
from typing import NamedTuple

from kvsim.engine.connectors.connector import Connector, Report
from kvsim.engine.plan import Plan


class StagedLaunch(NamedTuple):
    """Times of a step launched on all stages.

    end_ps: when the step leaves the last stage. ready_ps: when its output can be processed. report:
    copies that all stages have reported.
    """

    end_ps: int
    ready_ps: int
    report: Report


class StageWorkers:
    """Launches steps on the stages of one pipeline, with the copies of each stage.

    in_flight: plans launched and not yet processed. overlaps: asynchronous scheduling, so that a
    step is launched before the tokens of the one before it exist.
    """

    def __init__(
        self, in_flight: deque[Plan], connector: Connector, num_stages: int, *, overlaps: bool
    ) -> None:
        assert connector.stage_copies is not None
        self._in_flight, self._connector = in_flight, connector
        self._copies = connector.stage_copies
        self._num_stages, self._overlaps = num_stages, overlaps
        self._launched_ps = [0] * num_stages  # when the thread of each stage is free
        self._stage_ps = [0] * num_stages  # when all that was launched there has computed

    def _token_ps(self) -> int:
        """Time until which all stages but the last wait for the sampled tokens of the step launched
        num_stages steps before (see `StepTimer`).
        """
        flying = self._in_flight
        if len(flying) >= self._num_stages and flying[0].continues:
            return flying[0].end_ps
        return 0

    def unheld_end_ps(
        self, plan: Plan, now_ps: int, durations_ps: list[int], sends_ps: list[int]
    ) -> int:
        """Time at which the step would leave the last stage if no copy delayed it.

        durations_ps[i]: compute on stage i; sends_ps[i]: transfer to stage i + 1.
        """
        at_ps = max(now_ps + plan.stall_ps, self._token_ps())
        for stage, stage_ps in enumerate(durations_ps):
            thread_ps = self._launched_ps[stage]
            at_ps = max(at_ps, self._stage_ps[stage], thread_ps) + stage_ps + sends_ps[stage]
        return at_ps

    def launch(
        self, plan: Plan, now_ps: int, durations_ps: list[int], sends_ps: list[int]
    ) -> StagedLaunch:
        """Launch the step at now_ps. durations_ps[i]: compute on stage i; sends_ps[i]: transfer to
        stage i + 1.
        """
        token_ps, computes = self._token_ps(), not plan.empty
        poll_ps, empty_poll_ps = self._connector.poll_ps, self._connector.empty_poll_ps
        last = self._num_stages - 1
        polls_ps: list[int] = []
        waits_ps: list[int] = []
        runs_ps: list[tuple[int, int]] = []
        launch_ps, came_ps, ready_ps = now_ps, now_ps + plan.stall_ps, now_ps
        for stage in range(last + 1):
            begin_ps = max(now_ps, self._launched_ps[stage])
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
        ready_ps = max(ready_ps, self._launched_ps[last])
        report = self._copies.poll_stages(polls_ps)
        if self._connector.journal is not None:
            self._connector.journal.add("wait", waits_ps)
            self._connector.journal.add("runs", runs_ps)
        return StagedLaunch(end_ps, ready_ps, report)
