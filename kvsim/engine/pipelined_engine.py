"""The engine over the stages of a pipeline (vLLM 0.33, v1/engine/core.py `step_with_batch_queue`).

Empty plans are in flight too: the engine fills its queue before it waits. With nothing left but
steps of sequences that have ended it waits for these, and plans one empty step that names them.
"""

from kvsim.engine.engine import Engine
from kvsim.engine.plan import Plan


class PipelinedEngine(Engine):
    """Of the newest plan it knows whether there were requests, and whether sequences had ended
    since the plan before.
    """

    _requests: bool = False
    _names: bool = False
    _ended: bool = False

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
