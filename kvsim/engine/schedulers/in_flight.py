"""Steps in flight: what a scheduler knows of sequences before their outputs are processed.

vLLM 0.33 stores two integers on the request (v1/core/sched/async_scheduler.py,
`num_output_placeholders`, `next_decode_eligible_step`). Here they are `Sequence.placeholders` and
`Sequence.next_step`. `Sequence.in_flight` is the newest plan that computes for the sequence.
Outputs count once they are scheduled, so a sequence with its last token in flight leaves the batch
(`Scheduler._complete`).

With pipeline stages the first stage waits for sampled tokens that a later step may continue from
(v1/worker/gpu/pp_utils.py `get_prev_sampled_outputs`). The step that preempts a sequence still
waits for the victim's tokens, because the stage frees the victim only afterwards. Later steps do
not.
"""

from collections import deque
from collections.abc import Iterable

from kvsim.engine.plan import Plan
from kvsim.sequence import Sequence


class StepsInFlight:
    """The plans of one scheduler with outputs not yet processed.

    stages: pipeline stages; as many plans are in flight, one more if `ahead`, under asynchronous
    scheduling. counts: whether plans are tracked; not with one stage and no connector. step: number
    of the newest plan, counting empty ones. newest: the last plan; None once its outputs are
    processed.
    """

    def __init__(self, stages: int, *, ahead: bool, connects: bool) -> None:
        self.stages, self.ahead = stages, ahead
        self.counts = stages > 1 or (connects and ahead)
        self.step = 0
        self.newest: Plan | None = None
        self._resting: deque[Plan] = deque()  # their sequences may not decode again yet
        self._abandoned: list[Plan] = []  # of the victims of the newest step

    def begin(self) -> None:
        """Begin a step: from now on no stage waits for tokens of victims of earlier steps."""
        self.step += 1
        for plan in self._abandoned:
            plan.abandoned += 1
        self._abandoned.clear()

    def compute(self, seq: Sequence, plan: Plan) -> None:
        """Note that `plan`, the newest, computes for `seq`."""
        seq.in_flight = plan
        seq.next_step = self.step + self.stages

    def lets_join(self, seq: Sequence) -> bool:
        """Whether `seq` may decode in the step after the newest; with pipeline stages not if it is
        in the newest.
        """
        if self.stages == 1:
            return True
        return seq.in_flight is None or seq.in_flight is not self.newest

    def launch(self, plan: Plan, outputs: dict[Sequence, int]) -> None:
        """Add the scheduled `plan`. outputs: its sequences, each with its output tokens."""
        self.newest, plan.outputs = plan, outputs
        for seq, num in outputs.items():
            seq.in_flight = plan
            seq.placeholders += num

    def abandon(self, victim: Sequence) -> None:
        """Note that the newest step preempts `victim`."""
        plan = victim.in_flight
        if self.stages > 1 and isinstance(plan, Plan) and plan.continues_with(victim):
            self._abandoned.append(plan)

    def may_start(self, seq: Sequence) -> bool:
        """Whether a preempted `seq` may start again: with pipeline stages only if it has no step in
        flight.
        """
        return self.stages == 1 or seq.in_flight is None

    def rested(self, plan: Plan) -> list[Sequence]:
        """Under asynchronous scheduling: sequences that may get their next token in the step after
        `plan`, just scheduled.

        They got their last token as many steps before as there are stages.
        """
        self._resting.append(plan)
        if len(self._resting) < self.stages:
            return []
        rested = self._resting.popleft()
        return [seq for seq in rested.outputs if seq.in_flight is rested]

    def took_token(self, seq: Sequence, plan: Plan) -> bool:
        """Whether a running sequence without a chunk in `plan`, just scheduled, decodes in it."""
        if self.stages > 1:
            return seq.in_flight is plan
        return seq.decoding and seq not in plan.passed_over

    def outputs(
        self, plan: Plan, running: Iterable[Sequence], verified: dict[Sequence, int]
    ) -> dict[Sequence, int]:
        """Sequences of `plan`, just scheduled, in running order, each with its number of output
        tokens.

        verified: these numbers for sequences that verify drafts without a chunk.
        """
        known = {chunk.seq: chunk.num_outputs for chunk in plan.chunks} | verified
        passed_over, ends = set(plan.passed_over), set(plan.finishing)
        found: dict[Sequence, int] = {}
        for seq in running:
            if seq in known:
                found[seq] = known[seq]
            elif self.stages > 1:
                if seq.in_flight is plan:
                    found[seq] = 1
            elif seq in ends or (seq.decoding and seq not in passed_over):
                found[seq] = 1
        return found

    def land(self, plan: Plan) -> list[Sequence]:
        """Process the end of `plan`; returns its sequences without a later step in flight."""
        if plan is self.newest:
            self.newest = None
        landed = list[Sequence]()
        for seq, num in plan.outputs.items():
            seq.placeholders -= num
            if seq.in_flight is plan:
                seq.in_flight = None
                landed.append(seq)
        return landed
