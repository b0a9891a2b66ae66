"""Steps in flight: what a scheduler knows of sequences before their outputs have returned.

vLLM 0.33 says it with two integers on the request (v1/core/sched/async_scheduler.py,
`num_output_placeholders`, `next_decode_eligible_step`). So does this: `Sequence.placeholders` and
`Sequence.next_step`, and `Sequence.in_flight`, the newest plan that computes for it. Outputs count
once they are scheduled, so a sequence with its last token in flight leaves the batch
(`Scheduler._complete`).

Over the stages of a pipeline the first stage waits for tokens that a later step may continue from
(v1/worker/gpu/pp_utils.py `get_prev_sampled_outputs`). It hears of a preemption with the step that
preempts, but looks for tokens before it frees the victim. So only later steps do not wait.
"""

from collections import deque
from collections.abc import Iterable

from kvsim.engine.plan import Plan
from kvsim.sequence import Sequence


class StepsInFlight:
    """The plans of one scheduler that have not returned.

    stages: of the pipeline; as many plans are in flight, one more if `ahead`: under asynchronous
    scheduling. counts: plans are followed at all; not on one stage where no connector asks. step:
    number of the newest plan, empty ones counted. newest: the last plan; None once it has returned.
    """

    def __init__(self, stages: int, *, ahead: bool, connects: bool) -> None:
        self.stages, self.ahead = stages, ahead
        self.counts = stages > 1 or (connects and ahead)
        self.step = 0
        self.newest: Plan | None = None
        self._resting: deque[Plan] = deque()  # their sequences may not decode again yet
        self._abandoned: list[Plan] = []  # of the victims of the newest step

    def begin(self) -> None:
        """A further step begins: nothing waits for the tokens of victims before it."""
        self.step += 1
        for plan in self._abandoned:
            plan.abandoned += 1
        self._abandoned.clear()

    def compute(self, seq: Sequence, plan: Plan) -> None:
        """`plan`, the newest, computes for `seq`."""
        seq.in_flight = plan
        seq.next_step = self.step + self.stages

    def lets_join(self, seq: Sequence) -> bool:
        """Whether a sequence may decode in the step after the newest: over the stages of a pipeline
        it has no token in that.
        """
        if self.stages == 1:
            return True
        return seq.in_flight is None or seq.in_flight is not self.newest

    def launch(self, plan: Plan, outputs: dict[Sequence, int]) -> None:
        """`plan` is decided. outputs: its sequences, each with the tokens that it puts out."""
        self.newest, plan.outputs = plan, outputs
        for seq, num in outputs.items():
            seq.in_flight = plan
            seq.placeholders += num

    def abandon(self, victim: Sequence) -> None:
        """The newest step preempts `victim`."""
        plan = victim.in_flight
        if self.stages > 1 and isinstance(plan, Plan) and plan.continues_with(victim):
            self._abandoned.append(plan)

    def may_start(self, seq: Sequence) -> bool:
        """Whether nothing of a preempted sequence is in flight that the stages of a pipeline would
        still compute.
        """
        return self.stages == 1 or seq.in_flight is None

    def rested(self, plan: Plan) -> list[Sequence]:
        """Under asynchronous scheduling: the sequences that may get their next token in the step
        after `plan`, just decided.

        They got their last one as many steps before as there are stages.
        """
        self._resting.append(plan)
        if len(self._resting) < self.stages:
            return []
        rested = self._resting.popleft()
        return [seq for seq in rested.outputs if seq.in_flight is rested]

    def took_token(self, seq: Sequence, plan: Plan) -> bool:
        """Whether a running sequence without a chunk in `plan`, just decided, decodes in it."""
        if self.stages > 1:
            return seq.in_flight is plan
        return seq.decoding and seq not in plan.passed_over

    def outputs(
        self, plan: Plan, running: Iterable[Sequence], verified: dict[Sequence, int]
    ) -> dict[Sequence, int]:
        """Sequences of `plan`, just decided, in running order, each with the tokens that it puts
        out. verified: of those that verify drafts without a chunk.
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
        """The outputs of `plan` have returned. Returns its sequences without a later step in
        flight.
        """
        if plan is self.newest:
            self.newest = None
        landed = list[Sequence]()
        for seq, num in plan.outputs.items():
            seq.placeholders -= num
            if seq.in_flight is plan:
                seq.in_flight = None
                landed.append(seq)
        return landed
