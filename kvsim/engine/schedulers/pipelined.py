"""Continuous batching over the stages of a pipeline, as vLLM 0.33 schedules it without asynchronous
scheduling (v1/engine/core.py `step_with_batch_queue`, v1/core/sched/scheduler.py).

As many micro-batches are in flight as there are stages. A sequence whose token is in flight gets no
further one until that token has returned, so the running sequences fall into micro-batches by
themselves. The next chunk of a prompt is scheduled while the one before it is in flight.
"""

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import Plan
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.schedulers.knobs import Knobs
from kvsim.memory.allocator import Allocator
from kvsim.sequence import Sequence
from kvsim.vllm.rules import SchedulingRules


@mypyc_attr(allow_interpreted_subclasses=True)
class PipelinedScheduler(ContinuousScheduler):
    """A running sequence with a token in flight is in neither `batch` nor `prefilling`."""

    def __init__(
        self,
        allocator: Allocator,
        max_model_len: int,
        policies: Policies,
        version: SchedulingRules,
        knobs: Knobs,
    ) -> None:
        super().__init__(allocator, max_model_len, policies, version, knobs)
        self._in_flight: dict[Sequence, Plan] = {}  # sequences, and the newest plan of their tokens
        self._stale: dict[Sequence, Plan] = {}  # likewise, of preempted sequences

    def _may_start(self, seq: Sequence) -> bool:
        """A preempted sequence waits until what it had in flight has returned."""
        return seq not in self._stale and super()._may_start(seq)

    def _close(self, plan: Plan) -> Plan:
        flying, prefilling = self._in_flight, self.prefilling
        passed_over = set(plan.passed_over)
        waiting = [
            seq
            for seq, its_plan in flying.items()
            if seq not in prefilling and seq not in its_plan.finishing
        ]
        super()._close(plan)
        plan.passed_over.extend(waiting)
        for chunk in plan.chunks:
            flying[chunk.seq] = plan
        for seq in plan.finishing:
            flying[seq] = plan
        for seq in self.running:
            if seq.decoding and seq not in passed_over:
                self.batch.leave(seq)
                flying[seq] = plan
        return plan

    def took_token(self, seq: Sequence, plan: Plan) -> bool:
        return self._in_flight.get(seq) is plan

    def _preempt(self, victim: Sequence, plan: Plan) -> None:
        super()._preempt(victim, plan)
        newest = self._in_flight.pop(victim, None)
        if newest is not None:
            self._stale[victim] = newest

    def repeatable(self, plan: Plan, limit: int) -> int:
        return 0

    def finish(self, plan: Plan) -> list[Sequence]:
        for seq in _of(plan, self._stale):
            del self._stale[seq]
        returned = _of(plan, self._in_flight)
        for seq in returned:
            del self._in_flight[seq]
        left = super().finish(plan)
        for seq in returned:
            if not seq.finished and seq not in self.prefilling:
                self._join(seq)
        return left


def _of(plan: Plan, plans: dict[Sequence, Plan]) -> list[Sequence]:
    """The sequences of this plan."""
    return [seq for seq, its_plan in plans.items() if its_plan is plan]
