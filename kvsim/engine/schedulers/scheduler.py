"""The base of all schedulers: what enters the queue, and the life of a plan.

schedule() decides one step and takes its memory; only this differs between policies.
repeatable(plan) is the number of equal steps that could follow, repeat(plan, k) schedules k of
them, and finish(plan) processes the outputs of the last one.
"""

from abc import abstractmethod

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.step_builder import StepBuilder
from kvsim.memory.allocator import Refusal
from kvsim.memory.ledger import Course
from kvsim.request import Request
from kvsim.sequence import Sequence, by_order


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler(StepBuilder):
    """A policy over the waiting and running sequences of one allocator."""

    @abstractmethod
    def schedule(self) -> Plan:
        """Decide the next step, take its memory and advance its sequences."""

    @abstractmethod
    def refusal(self, request: Request) -> Refusal | None:
        """The reason why this scheduler could never run `request`; None if it could."""

    def output_limit(self, request: Request) -> int:
        """Number of output tokens after which max_model_len ends a request."""
        return max(1, self.max_model_len - request.prompt_tokens)

    def add(self, seq: Sequence) -> bool:
        """Queue a new sequence. Returns whether the next plan could differ because of it."""
        before, request = self.waiting.head, seq.request
        if request.items or request.adapter is not None:
            self.limits = self.special_limits
        self.waiting.add(seq)
        return self.waiting.head is not before or not self.running or self.limits.bind

    def give_up(self, head: Sequence) -> Refusal | None:
        """Remove `head` and return why, if the simulated engine never starts it; else None."""
        return None

    @property
    def expects_more(self) -> bool:
        """Whether the head of the queue may start once content in transfer has arrived."""
        return False

    @property
    def swapped_bytes(self) -> int:
        """Bytes swapped to host memory and back so far."""
        return self.preemption.swapped_bytes

    # --- the life of a plan ---------------------------------------------------------------------

    def repeatable(self, plan: Plan, limit: int) -> int:
        """Number of further steps equal to `plan` if nothing arrives, at most `limit`: only the
        batch decodes, no sequence finishes, memory suffices, and the queue stays blocked.
        """
        if plan.chunks or plan.passed_over or plan.preempted or plan.finishing or plan.stalls:
            return 0
        if not self.limits.stay() or (self.limits.bind and self.prefilling):
            return 0
        batch = self.batch
        limit = batch.steps_that_fit(min(limit, batch.steps_to_leave()))
        # The need of the head of the queue, which may have been skipped, splits the free bytes.
        for head in dict.fromkeys((self._blocked_head(), self.waiting.head)):
            if head is not None and limit:
                limit = batch.steps_head_stays_blocked(head, limit, busy=bool(self.running))
        return limit

    def _blocked_head(self) -> Sequence | None:
        """The waiting sequence that did not fit in the last step and blocks those behind it."""
        return self.waiting.head

    def returns_quietly(self, plan: Plan) -> bool:
        """Whether the return of the outputs of `plan` leaves later steps the same. A finished
        prompt becomes known content, which may let a waiting sequence start or free a duplicate.
        """
        return not plan.finishing and (not plan.chunks or self.waiting.head is None)

    def enable_lockstep(self, depth: int) -> None:
        """Before the first step: let all verify drafts in lockstep, `depth` steps in flight."""

    def repeat(self, plan: Plan, steps: int) -> Course:
        """Schedule `steps` more steps of `plan` (one if it has drafts); returns the course."""
        course = self.batch.advance(steps)
        self.allocator.step_decided()
        plan.steps += steps
        self._complete(plan)
        return course

    def took_token(self, seq: Sequence, plan: Plan) -> bool:
        """Whether a running sequence without a chunk in `plan`, just scheduled, decodes in it."""
        return seq.decoding and seq not in plan.passed_over

    def step_returned(self) -> None:
        """The oldest step in flight of a repeated plan returned; no sequence finishes with it."""

    def finish(self, plan: Plan) -> list[Sequence]:
        """The plan's last step returned: its finished sequences leave, in running order."""
        plan.finishing.sort(key=by_order)
        self.limits.returned(plan, plan.finishing)
        for chunk in plan.chunks:
            if chunk.samples and chunk.seq in self.running and chunk.seq not in plan.finishing:
                self.allocator.checkpoint(chunk.seq, chunk.end_tokens)
        for seq in plan.finishing:
            self._leave(seq)
        return plan.finishing

    def _leave(self, seq: Sequence) -> None:
        """Remove `seq`, which has its last output."""
        seq.finished = True
        self.preemption.drop(seq)
        if seq in self.running:
            del self.running[seq]
            self.allocator.release(seq)
            self.limits.released(seq)
        else:
            self.waiting.remove(seq)  # preempted while its last token was on its way
