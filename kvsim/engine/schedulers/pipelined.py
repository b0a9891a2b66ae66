"""Continuous batching over the stages of a pipeline, as vLLM 0.33 schedules it (v1/engine/core.py
`step_with_batch_queue`, v1/core/sched/scheduler.py, async_scheduler.py).

As many micro-batches are in flight as there are stages. A sequence whose token is in flight gets no
further one until that token has returned, so the running sequences fall into micro-batches by
themselves. The next chunk of a prompt is scheduled while the one before it is in flight.

Under asynchronous scheduling one micro-batch more is in flight. A sequence with a token may get the
next one as many steps later as there are stages, just before the token returns.
"""

from collections import deque
from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.abandoned import Abandoned
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class PipelinedScheduler(ContinuousScheduler):
    """A running sequence with a token in flight is in neither `batch` nor `prefilling` until it may
    get the next one.
    """

    def __init__(self, parts: ContinuousParts) -> None:
        super().__init__(parts)
        self._in_flight: dict[Sequence, Plan] = {}  # sequences, and the newest plan of their tokens
        self._stale: dict[Sequence, Plan] = {}  # likewise, of preempted sequences
        self._newest = Plan()
        self._resting: deque[Plan] = deque()  # their sequences may not decode again yet
        self._abandoned = Abandoned()

    def schedule(self) -> Plan:
        self._abandoned.tell()
        return super().schedule()

    def _may_start(self, seq: Sequence) -> bool:
        """A preempted sequence waits until what it had in flight has returned."""
        return seq not in self._stale and super()._may_start(seq)

    def _close(self, plan: Plan) -> Plan:
        flying, prefilling = self._in_flight, self.prefilling
        passed_over, self._newest = set(plan.passed_over), plan
        waiting = [
            seq
            for seq, its_plan in flying.items()
            if not (seq.decoding or seq in passed_over or seq in prefilling)
            and seq not in its_plan.finishing
        ]
        for chunk in plan.chunks:
            flying[chunk.seq] = plan
        super()._close(plan)
        plan.passed_over.extend(waiting)
        for seq in plan.finishing:
            flying[seq] = plan
        for seq in self.running:
            if seq.decoding and seq not in passed_over:
                self.batch.leave(seq)
                flying[seq] = plan
        if stagger := self._knobs.decode_stagger:
            self._resting.append(plan)
            if len(self._resting) == stagger:
                rested = self._resting.popleft()
                self._go_on(rested, _of(rested, flying))
        return plan

    def _join(self, seq: Sequence) -> None:
        if self._in_flight.get(seq) is not self._newest:
            super()._join(seq)

    def _go_on(self, plan: Plan, sequences: Iterable[Sequence]) -> None:
        """Those of `plan` that decode may get their next token from the next step on."""
        for seq in sequences:
            if seq not in plan.finishing and seq not in self.prefilling:
                self._join(seq)

    def took_token(self, seq: Sequence, plan: Plan) -> bool:
        return self._in_flight.get(seq) is plan

    def _preempt(self, victim: Sequence, plan: Plan) -> None:
        super()._preempt(victim, plan)
        newest = self._in_flight.pop(victim, None)
        if newest is not None:
            self._stale[victim] = newest
            self._abandoned.add(victim, newest)

    def repeatable(self, plan: Plan, limit: int) -> int:
        return 0

    def finish(self, plan: Plan) -> list[Sequence]:
        for seq in _of(plan, self._stale):
            del self._stale[seq]
        returned = _of(plan, self._in_flight)
        for seq in returned:
            del self._in_flight[seq]
        left = super().finish(plan)
        if not self._knobs.decode_stagger:
            self._go_on(plan, returned)
        return left


def _of(plan: Plan, plans: dict[Sequence, Plan]) -> list[Sequence]:
    """The sequences of this plan."""
    return [seq for seq, its_plan in plans.items() if its_plan is plan]
