"""Speculative decoding over the stages of a pipeline, as vLLM 0.33 schedules it asynchronously
(v1/core/sched/async_scheduler.py, v1/worker/gpu/pp_utils.py).

The drafter runs on the last stage, which sends the sampled tokens and the drafts to the others. A
sequence may get its next step as many steps after the last one as there are stages. That one is
then still in flight, and all its drafts are believed to be accepted.
"""

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.abandoned import Abandoned
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.speculating import SpeculatingScheduler
from kvsim.engine.speculation.verifier import NextStep, Verifier
from kvsim.plumbing.errors import InputError
from kvsim.sequence import Sequence


def check_ahead(*, ahead: bool) -> None:
    """InputError without asynchronous scheduling, where drafts are known to the scheduler before
    the token that they follow (vLLM 0.33, v1/engine/core.py `post_step`).
    """
    if not ahead:
        raise InputError(
            "over several pipeline stages drafts are simulated under asynchronous scheduling: "
            "without it, vLLM 0.33 schedules drafts before the token that they follow",
            where="scheduler.async_scheduling",
            value=False,
            limit=True,
            remedy="async_scheduling = true, the default of vllm serve",
        )


class PipelinedSpeculatingScheduler(SpeculatingScheduler):
    """stages: of the pipeline."""

    def __init__(self, parts: ContinuousParts, verifier: Verifier, stages: int) -> None:
        super().__init__(parts, verifier)
        self._stages = stages
        self._step = 0  # empty ones too
        self._rested: dict[Sequence, int] = {}  # the first step that may be their next one
        self._newest: dict[Sequence, Plan] = {}  # in flight
        self._stale: dict[Sequence, Plan] = {}  # likewise, of preempted sequences
        self._abandoned = Abandoned()

    def schedule(self) -> Plan:
        self._step += 1
        self._abandoned.tell()
        return super().schedule()

    def _may_start(self, seq: Sequence) -> bool:
        """A preempted sequence waits until what it had in flight has returned."""
        return seq not in self._stale and super()._may_start(seq)

    def _next_step(self, seq: Sequence, most_tokens: int) -> NextStep | None:
        if self._step < self._rested.get(seq, 0):
            return None
        return super()._next_step(seq, most_tokens)

    def _close(self, plan: Plan) -> Plan:
        super()._close(plan)
        for chunk in plan.chunks:
            self._newest[chunk.seq] = plan
            if chunk.seq not in self.prefilling:
                self._rested[chunk.seq] = self._step + self._stages
        return plan

    def _preempt(self, victim: Sequence, plan: Plan) -> None:
        super()._preempt(victim, plan)
        newest = self._newest.pop(victim, None)
        if newest is not None:
            self._stale[victim] = newest
            self._abandoned.add(victim, newest)

    def repeatable(self, plan: Plan, limit: int) -> int:
        return 0

    def finish(self, plan: Plan) -> list[Sequence]:
        for flying in (self._newest, self._stale):
            for seq in [seq for seq, its_plan in flying.items() if its_plan is plan]:
                del flying[seq]
        left = super().finish(plan)
        for seq in left:
            self._rested.pop(seq, None)
        return left
