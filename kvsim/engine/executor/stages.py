"""Executor of pipeline stages (vLLM 0.33, v1/engine/core.py `step_with_batch_queue`).

Empty plans are in flight too: the engine fills its batch queue before it waits. If only steps of
ended sequences are in flight, the engine waits for these. Then it schedules one empty step, which
reports the ended sequences to the workers.

While one plan holds all running sequences, and the others in flight are empty, only one stage
computes at a time. Such a plan runs for many steps as on one stage.
"""

from kvsim.engine.core import EngineCore
from kvsim.engine.engine import Executor, Next
from kvsim.engine.plan import Plan
from kvsim.step_time.stages import StageTimes


class Stages(Executor):
    """Tracks whether the newest plan had requests, and whether sequences have ended since the plan
    before.
    """

    def __init__(self, core: EngineCore) -> None:
        super().__init__(core)
        times = core.parts.step_time
        stages = len(times.forms) if isinstance(times, StageTimes) else 0
        # steps scheduled before a return
        self._ahead = core.steps_ahead + 1 - stages if stages else None
        self._requests = self._names = self._ended = False

    def launch(self, plan: Plan) -> None:
        super().launch(plan)
        scheduler = self._core.scheduler
        self._requests = bool(scheduler.running) or scheduler.waiting.head is not None
        self._names, self._ended = self._ended, False

    def next(self, plan: Plan) -> Next:
        flying = self._core.in_flight
        if plan.empty and all(each.empty for each in flying):
            return Next.REST
        fills = not plan.empty or self._requests
        return Next.FILL if fills and len(flying) < self._core.steps_ahead else Next.RUN

    def stays(self, plan: Plan) -> bool:
        return not plan.empty or self._requests or self._names

    def land(self, plan: Plan, now_ps: int) -> None:
        super().land(plan, now_ps)
        self._ended = self._ended or bool(plan.finishing)

    # --- one plan alone ---------------------------------------------------------------------------

    def repeatable(self, plan: Plan) -> int:
        if self._core.max_steps == 1 or plan.chunks or not self._is_alone(plan):
            return 0
        self._core.timer.time_alone(plan)
        return super().repeatable(plan) if plan.affine_steps > 1 else 0

    def _is_alone(self, plan: Plan) -> bool:
        """Whether all steps in flight are empty. Under asynchronous scheduling the oldest may
        compute, if it ends where `plan` begins.
        """
        flying = iter(self._core.in_flight)
        if self._ahead is None:
            return False
        if self._ahead and next(flying).end_ps != plan.start_ps:
            return False
        return all(each.empty for each in flying)

    def overlap(self, steps: int) -> int:
        return self._ahead if steps > 1 and self._ahead is not None else 1

    def ran(self, plan: Plan) -> None:
        core = self._core
        core.scheduler.run_ended(plan)
        core.timer.ran_alone(plan)
        for each in core.in_flight:  # empty ones, scheduled right after the last step
            each.start_ps = plan.last_start_ps if self._ahead else plan.end_ps
