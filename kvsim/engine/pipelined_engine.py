"""The engine over the stages of a pipeline (vLLM 0.33, v1/engine/core.py `step_with_batch_queue`).

Empty plans are in flight too: the engine fills its queue before it waits. With nothing left but
steps of sequences that have ended it waits for these, and plans one empty step that names them.

While one plan holds all running sequences, and the others in flight are empty, the stages compute
one after the other. Such a plan runs for many steps as on one stage.
"""

from kvsim.engine.clock import EngineClock
from kvsim.engine.engine import Engine
from kvsim.engine.parts import EngineParts
from kvsim.engine.plan import Plan
from kvsim.step_time.stages import StageTimes


class PipelinedEngine(Engine):
    """Tracks whether the newest plan had requests, and whether sequences have ended since the plan
    before.
    """

    _requests: bool = False
    _names: bool = False
    _ended: bool = False
    _runs: bool = False  # the plan awaited runs alone

    def __init__(self, env: EngineClock, parts: EngineParts) -> None:
        times = parts.step_time
        stages = len(times.forms) if isinstance(times, StageTimes) else 0
        self._ahead = parts.depth - stages if stages else None  # steps scheduled before a return
        super().__init__(env, parts)

    def _plan(self) -> Plan:
        plan = super()._plan()
        scheduler = self.scheduler
        self._requests = bool(scheduler.running) or scheduler.waiting.head is not None
        self._names, self._ended = self._ended, False
        return plan

    def _fills(self, plan: Plan) -> bool:
        return not plan.empty or self._requests

    def _flies(self, plan: Plan) -> bool:
        return not plan.empty or self._requests or self._names

    def _return(self, plan: Plan, now_ps: int) -> None:
        super()._return(plan, now_ps)
        self._ended = self._ended or bool(plan.finishing)

    # --- one plan alone ---------------------------------------------------------------------------

    def _repeatable(self, plan: Plan) -> int:
        if self._max_steps == 1 or plan.chunks or not self._is_alone(plan):
            return 0
        self._timer.time_alone(plan)
        return super()._repeatable(plan) if plan.affine_steps > 1 else 0

    def _is_alone(self, plan: Plan) -> bool:
        """Whether all steps in flight are empty but, under asynchronous scheduling, the oldest,
        which ends where the plan begins.
        """
        flying = iter(self._in_flight)
        if self._ahead is None:
            return False
        if self._ahead and next(flying).end_ps != plan.start_ps:
            return False
        return all(each.empty for each in flying)

    def _overlap_of(self, steps: int) -> int:
        self._runs = steps > 1
        return self._ahead if self._runs and self._ahead is not None else 1

    def _repeat(self, plan: Plan, steps: int) -> None:
        super()._repeat(plan, steps)
        if self._runs:
            self.scheduler.run_ended(plan)
            self._timer.ran_alone(plan)
            for each in self._in_flight:  # empty ones, scheduled right after the last step
                each.start_ps = plan.last_start_ps if self._ahead else plan.end_ps
