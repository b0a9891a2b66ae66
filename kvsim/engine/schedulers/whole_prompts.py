"""The base of schedulers that compute every prompt whole, in one step."""

from collections.abc import Iterator
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import UNBOUNDED, Plan
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.allocator import Allocator, Refusal
from kvsim.request import Request
from kvsim.sequence import Sequence


class StepLimits(NamedTuple):
    """(max_num_seqs, max_num_batched_tokens): most running sequences, and most new tokens of a
    step.
    """

    max_num_seqs: int
    max_num_batched_tokens: int = UNBOUNDED


@mypyc_attr(allow_interpreted_subclasses=True)
class WholePromptScheduler(Scheduler):
    """Admits whole prompts, first come, first served, until one does not fit.

    A resumed sequence with more tokens than the limit of a step gets a separate step, or it could
    never finish.
    """

    def __init__(
        self,
        allocator: Allocator,
        max_model_len: int,
        policies: Policies,
        limits: StepLimits,
    ) -> None:
        super().__init__(allocator, max_model_len, policies)
        self._max_num_seqs, self._max_num_batched_tokens = limits

    def refusal(self, request: Request) -> Refusal | None:
        if request.prompt_tokens <= self._max_num_batched_tokens:
            return None
        return Refusal(
            "no step can take its prompt whole",
            request.prompt_tokens,
            self._max_num_batched_tokens,
            "tokens (max_num_batched_tokens)",
            "raise the limit or take a scheduler that computes prompts in chunks",
        )

    def schedule(self) -> Plan:
        """Schedule a token of every decoding sequence, and the prompts that fit."""
        plan = Plan()
        self._decode(plan)
        if not plan.preempted:
            self._admit(plan, self._max_num_batched_tokens - self.batch.num)
        return self._close(plan)

    # --- building blocks of a plan --------------------------------------------------------------

    def _fit_tokens(self, seq: Sequence) -> int:
        """Number of slots that must be free for `seq` to start."""
        return seq.num_tokens

    def _head_is_swapped(self) -> bool:
        head = self.waiting.head
        return head is not None and self.preemption.kept_tokens(head) > 0

    def _admit(self, plan: Plan, budget: int, *, only_swapped: bool = False) -> None:
        """Start waiting sequences with whole prompts, until one does not fit. only_swapped: stop at
        one that was not swapped out.
        """
        while len(self.running) < self._max_num_seqs:
            seq = self.waiting.head
            if seq is None or (only_swapped and not self._head_is_swapped()):
                break
            cached = self.cached(seq)
            new_tokens = seq.num_tokens - cached.tokens
            alone = bool(seq.num_preemptions) and not plan.chunks
            if new_tokens > budget and not alone:
                break
            if not self.admit_first(plan, cached, new_tokens, self._fit_tokens(seq)):
                break
            budget -= new_tokens

    def _decode(self, plan: Plan) -> None:
        """Schedule a token of every decoding sequence; if memory does not suffice, victims are
        preempted.
        """
        if self.batch.num and not self.allocator.steps_that_fit(1):
            for seq in self.allocator.must_extend():
                if seq in self.running:
                    self._make_room(seq, plan)
        self.step_decoders(plan, [])

    def _make_room(self, seq: Sequence, plan: Plan) -> None:
        """Allocate memory for the next token of `seq`, preempting others or, at last, itself."""
        while not self.extend(seq, plan, self.batch.slots(seq) + 1):
            if self._give_up_finished():
                continue
            victim = self.choose_victim(_Decoding(self.running))
            self.preempt(victim, plan)
            if victim is seq:
                break

    def _give_up_finished(self) -> bool:
        """Free the memory of a finished sequence that still holds it; False if there is none."""
        return False


class _Decoding:
    """View of the running sequences that are decoding, in order of admission."""

    def __init__(self, running: dict[Sequence, None]) -> None:
        self._running = running

    def __iter__(self) -> Iterator[Sequence]:
        return (seq for seq in self._running if seq.decoding)

    def __reversed__(self) -> Iterator[Sequence]:
        return (seq for seq in reversed(self._running) if seq.decoding)
