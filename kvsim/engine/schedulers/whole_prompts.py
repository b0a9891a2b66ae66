"""What schedulers share that compute every prompt whole, in one step."""

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.allocator import Allocator, Refusal
from kvsim.request import Request
from kvsim.sequence import Sequence


class WholePromptScheduler(Scheduler):
    """First come, first served; stops at the first of the queue that does not fit.

    A sequence that comes back after a preemption may have more tokens than a step takes of new
    prompts: it then opens a step of its own, or nothing could ever bring it to its end.
    """

    def __init__(
        self,
        allocator: Allocator,
        max_model_len: int,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
    ) -> None:
        super().__init__(allocator, max_model_len)
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens

    def refusal(self, request: Request) -> Refusal | None:
        if request.prompt_tokens <= self._max_num_batched_tokens:
            return None
        return Refusal(
            "a prompt that no step can take whole",
            request.prompt_tokens,
            self._max_num_batched_tokens,
            "tokens (max_num_batched_tokens)",
            "raise the limit or take a scheduler that computes prompts in chunks",
        )

    def schedule(self) -> Plan:
        """All decoders run in every step, and with them the prompts that fit."""
        plan = Plan()
        self._decode(plan)
        if not plan.preempted:
            self._admit(plan, self._max_num_batched_tokens - self.batch.num)
        return self._settle(plan)

    # --- building blocks of a plan --------------------------------------------------------------

    def _reserve_tokens(self, seq: Sequence) -> int:
        """How many slots must fit for `seq` to start."""
        return seq.num_tokens

    def _head_is_swapped(self) -> bool:
        head = self.waiting.head
        return head is not None and self.swap_space is not None and self.swap_space.holds(head)

    def _admit(self, plan: Plan, budget: int, *, only_swapped: bool = False) -> None:
        """Start the head of the queue with its whole prompt, and the next, while they fit."""
        while len(self.running) < self._max_num_seqs:
            seq = self.waiting.head
            if seq is None or (only_swapped and not self._head_is_swapped()):
                break
            cached = self._kept_tokens(seq)
            new_tokens = seq.num_tokens - cached
            alone = bool(seq.num_preemptions) and not plan.chunks
            if new_tokens > budget and not alone:
                break
            if not self.allocator.admit(
                seq,
                seq.num_tokens,
                cached_tokens=cached,
                reserve_tokens=self._reserve_tokens(seq),
                busy=bool(self.running),
            ):
                break
            self._start(seq, plan, cached, new_tokens)
            budget -= new_tokens

    def _decode(self, plan: Plan) -> None:
        """Every decoder takes a token; who finds no room for it takes that of the last one."""
        if self.batch.num and not self.allocator.steps_that_fit(1):
            for seq in self.allocator.due():
                if seq in self.running:
                    self._make_room(seq, plan)
        self._step_decoders(plan, [])

    def _make_room(self, seq: Sequence, plan: Plan) -> None:
        """Memory for the next token of `seq`, preempting the last for it, itself at worst."""
        while not self._extend(seq, plan, self.batch.slots(seq) + 1):
            if self._give_up_finished():
                continue
            victim = next(last for last in reversed(self.running) if last.decoding)
            self._preempt(victim, plan)
            if victim is seq:
                break

    def _give_up_finished(self) -> bool:
        """Take back memory that somebody holds without need of it; False if nobody does."""
        return False
