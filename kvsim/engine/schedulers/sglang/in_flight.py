"""The steps in flight, whose outputs have not returned.

Under the overlap schedule a pass comes before the outputs of the step before it: they are on their
way, and a retraction may throw one away.
"""

from collections.abc import Container

from kvsim.engine.plan import Plan
from kvsim.sequence import Sequence


class InFlight:
    """Plans scheduled whose outputs have not returned, in their order."""

    def __init__(self) -> None:
        self._plans: list[Plan] = []
        self._all_decoders = False  # a token of everybody who decodes, or
        self._begun: set[Sequence] = set()  # of these

    def __bool__(self) -> bool:
        return bool(self._plans)

    def scheduled(self, plan: Plan) -> None:
        """`plan` computes from now on."""
        self._plans.append(plan)

    def returned(self, plan: Plan) -> None:
        """The outputs of `plan` are there."""
        self._plans = [other for other in self._plans if other is not plan]

    def settle(self) -> None:
        """A pass begins: what the last plan computes is what is in flight in it."""
        last = self._plans[-1] if self._plans else None
        self._all_decoders = last is not None and last.num_decode > 0
        self._begun = {chunk.seq for chunk in last.chunks} if last else set()

    def has_token_of(self, seq: Sequence) -> bool:
        """Whether a token of `seq`, which decodes or has just begun to, has not returned."""
        return self._all_decoders or seq in self._begun

    @property
    def unreturned_tokens(self) -> tuple[bool, set[Sequence]]:
        """Whether a token of all decoding sequences is in flight; if not, of which one is."""
        return self._all_decoders, self._begun

    def last_tokens(self, among: Container[Sequence]) -> list[Sequence]:
        """Sequences whose token in flight is their last one, which no scheduler may know yet."""
        if not self._plans:
            return []
        return [seq for seq in self._plans[-1].finishing if seq in among]

    def lose_token(self, seq: Sequence, plan: Plan) -> None:
        """The step in flight computes a token of `seq`, retracted in `plan`, that nobody will
        see.
        """
        last = self._plans[-1]
        seq.num_outputs -= 1
        seq.num_computed -= 1
        last.finishing = [other for other in last.finishing if other is not seq]
        for chunk in last.chunks:
            if chunk.seq is seq:
                chunk.samples = False
        if seq in last.late:
            plan.lost[seq] = last.late.pop(seq)
        elif last.late_batch is not None and seq not in last.late_batch.apart:
            plan.lost[seq] = last.late_batch.since_ps
            last.late_batch.num -= 1
        else:
            plan.lost[seq] = last.last_start_ps
            last.num_late += seq not in self._begun  # of the batch: its gap is not counted
