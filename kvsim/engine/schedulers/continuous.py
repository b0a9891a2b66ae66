"""Continuous batching as vLLM's scheduler does it (v1/core/sched/scheduler.py, 0.33; 0.11.2 by
option): one token budget a step, running sequences first, then the head of the queue.
"""

from collections.abc import Callable
from collections.abc import Sequence as Row

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import Plan
from kvsim.engine.policies.victims.latest import Latest
from kvsim.engine.schedulers.budget_refusal import budget_refusal
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.allocator import Refusal
from kvsim.request import Request
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class ContinuousScheduler(Scheduler):
    """Running sequences first, in order of admission; then the waiting queue, head of line only."""

    _input_slots = 0  # tokens of the budget that a drafter reads beside those of each sequence

    def __init__(self, parts: ContinuousParts) -> None:
        super().__init__(parts.allocator, parts.max_model_len, parts.policies)
        version, knobs = self._version, self._knobs = parts.version, parts.knobs
        self._longest_chunk = knobs.longest_chunk
        # Whether the loop goes on behind a sequence that preempted itself.
        self._continues = knobs.by_priority and version.continues_after_self_preemption
        self._stopped_at: Sequence | None = None  # where the last step stopped admitting
        self._num_unstarted = self._num_unencoded = 0  # that it passed by for a limit of their own

    def refusal(self, request: Request) -> Refusal | None:
        return self.special_limits.refusal(request) or budget_refusal(
            request, self._knobs, self.allocator.chunk_tokens, self._input_slots
        )

    def schedule(self) -> Plan:
        plan = Plan()
        threshold = self._knobs.long_prefill_token_threshold
        lone = len(self.running) + len(self.waiting) <= 1
        if lone and self._version.lone_request_ignores_threshold:
            threshold = 0  # no other request to starve
        self.limits.begin()
        budget = self._knobs.max_num_batched_tokens
        budget = self._continue_running(plan, budget, threshold)
        if not plan.preempted:
            self._admit(plan, budget, threshold)
        return self._close(plan)

    # --- running sequences ----------------------------------------------------------------------

    def _continue_running(self, plan: Plan, budget: int, threshold: int) -> int:
        """Schedule the running sequences: decodes and further chunks of prompts. budget: tokens;
        returns the rest of it. threshold: most tokens of one prompt, 0 for no such limit.
        """
        stops_midway = self._knobs.by_priority and not self._continues
        if (
            self._prefills_come_last()
            and self.batch.num <= budget
            and not stops_midway
            and not self._may_be_anyone()
        ):
            return self._run(plan, budget, threshold)
        return self._run_one_by_one(plan, budget, threshold)

    def _prefills_come_last(self) -> bool:
        """Whether every prefilling sequence was admitted after every decoding one."""
        if not self.prefilling or not self.batch.num:
            return True
        last = reversed(self.running)
        return all(next(last) in self.prefilling for _ in self.prefilling)

    def _may_be_anyone(self) -> bool:
        """Whether a sequence must be preempted by a rule that may choose the one that asks for
        room. As under priorities, the sequences behind that one then get no turn in the step.
        """
        if isinstance(self.victim, Latest) or self._knobs.by_priority:
            return False
        return self.batch.num > 0 and not self.allocator.steps_that_fit(1)

    def _run(self, plan: Plan, budget: int, threshold: int) -> int:
        """The whole batch decodes, then prompts go on: only sequences short of memory are
        visited.
        """
        if self.batch.num and not self.allocator.steps_that_fit(1):
            for seq in self.allocator.must_extend():
                room = seq not in self.running or self._make_room(
                    seq, plan, self.batch.slots(seq) + 1
                )
                if not room and not self._continues:
                    break
        self._step_decoders(plan, [])
        for seq in list(self.prefilling):
            left = budget - self.batch.num - sum(chunk.new_tokens for chunk in plan.chunks)
            if left <= 0 or not self._continue_prompt(seq, plan, left, threshold):
                break
        return budget - self.batch.num - sum(chunk.new_tokens for chunk in plan.chunks)

    def _run_one_by_one(self, plan: Plan, budget: int, threshold: int) -> int:
        """`_run` sequence by sequence, for steps with a budget that may not suffice for all."""
        waiting_for_room = set(self.allocator.must_extend())
        scheduled: set[Sequence] = set()

        def left() -> int:
            chunks = sum(chunk.new_tokens for chunk in plan.chunks)
            return budget - chunks - sum(seq in self.running for seq in scheduled)

        turned: set[Sequence] = set()
        lost = 0
        for seq in list(self.running):
            if left() <= 0:
                break
            if seq not in self.running:
                continue
            if lost:
                lost -= 1
                continue
            num_victims = len(plan.preempted)
            if seq.decoding:
                room = seq not in waiting_for_room or self._make_room(
                    seq, plan, self.batch.slots(seq) + 1
                )
                if room:
                    scheduled.add(seq)
                going = room or (self._continues and seq not in self.running)
            else:
                going = seq not in self.prefilling or self._continue_prompt(
                    seq, plan, left(), threshold
                )
            if not going:
                break
            if len(plan.preempted) > num_victims:
                lost = self._turns_lost(seq, plan.preempted[num_victims:], turned)
            if seq in scheduled or (plan.chunks and plan.chunks[-1].seq is seq):
                turned.add(seq)
        passed_over = [seq for seq in self.running if seq.decoding and seq not in scheduled]
        self._step_decoders(plan, passed_over)
        return left()

    def _turns_lost(self, seq: Sequence, victims: Row[Sequence], turned: set[Sequence]) -> int:
        """Number of sequences behind `seq` that lose their turn to `victims`; turned: had
        theirs.
        """
        if not (self._knobs.by_priority and self._version.preemption_skips_next):
            return 0
        return sum(victim.order < seq.order and victim not in turned for victim in victims)

    def _continue_prompt(self, seq: Sequence, plan: Plan, budget: int, threshold: int) -> bool:
        """The next chunk of a running prompt; False ends the loop over running sequences."""
        if seq not in self.running:
            return True
        new_tokens = seq.num_tokens - seq.num_computed
        if 0 < threshold < new_tokens:
            new_tokens = threshold
        sampled = min(1, seq.request.output_tokens)
        new_tokens = min(new_tokens, budget, self.max_model_len - seq.num_computed - sampled)
        if new_tokens <= 0:
            return True
        new_tokens = self._cut(seq, seq.num_computed, new_tokens)
        new_tokens = self._allowed(seq, seq.num_computed, new_tokens)
        if not new_tokens:
            return True
        if not self._make_room(seq, plan, seq.num_computed + new_tokens):
            return self._continues and seq not in self.running
        self._compute(seq, plan, new_tokens)
        return True

    def _cut(self, seq: Sequence, start_tokens: int, new_tokens: int) -> int:
        """Tokens of a chunk that the allocator wants computed in this step."""
        return self.allocator.cut_chunk(seq, start_tokens, new_tokens, self._longest_chunk)

    def _allowed(self, seq: Sequence, start_tokens: int, new_tokens: int) -> int:
        """Tokens of a chunk that the limits of this step allow; 0: the sequence is skipped."""
        return self.limits.allowed(seq, start_tokens, new_tokens)

    def _may_start(self, seq: Sequence) -> bool:
        """Whether a waiting sequence may start in this step, if there is room; else those behind
        it may.
        """
        return self.limits.may_start(seq)

    def passed_by(self) -> dict[str, int]:
        """How many waiting sequences the last plan passed by for want of something that those
        behind them may not need, by what it is: `adapters`, `encoder`, `loads`.
        """
        return {"encoder": self._num_unencoded, "adapters": self._num_unstarted}

    def _blocked_head(self) -> Sequence | None:
        return self._stopped_at if self.limits.bind else self.waiting.head

    def _padding(self, cached_tokens: int, *, prefills: bool, runs: bool) -> int | None:
        """Padding drafts, never accepted, if an admission computes one token; None: it waits."""
        return 0

    def _make_room(self, seq: Sequence, plan: Plan, num_tokens: int) -> bool:
        """Get memory for `num_tokens` slots of `seq`, preempting others or, at last, itself."""
        turns_before = 0 if self._stepped else seq.order

        def extend() -> bool:
            return self._extend(seq, plan, num_tokens, turns_before)

        return extend() or self._preempt_until(extend, seq, plan)

    def _preempt_until(self, took: Callable[[], bool], seq: Sequence, plan: Plan) -> bool:
        """Preempt one after the other until `took` succeeds; False once `seq` is preempted."""
        while True:
            victim = self._choose_victim(self.running)
            if victim.decoding and victim.order < seq.order and not self._stepped:
                self._count_scheduled(victim)
            self._preempt(victim, plan)
            if victim is seq:
                return False
            if took():
                return True

    def _count_scheduled(self, victim: Sequence) -> None:
        """A victim that had its turn in this step counts as having filled its slot in the cache,
        though the step will not compute it.
        """
        self.batch.leave(victim)
        self.allocator.extend(victim, victim.num_computed + 1)

    # --- waiting sequences ----------------------------------------------------------------------

    def _admit(self, plan: Plan, budget: int, threshold: int) -> None:
        """Start the head of the queue, and the next, until something does not fit."""
        skipped: list[Sequence] = []
        unready: list[Sequence] = []
        self._num_unstarted = self._num_unencoded = 0
        slots = self._input_slots
        prefills = any(chunk.seq in self.prefilling for chunk in plan.chunks)
        runs = not plan.empty
        while budget > slots and len(self.running) < self._knobs.max_num_seqs:
            seq = self.waiting.head
            if seq is None:
                break
            if not self._may_start(seq):
                unready.append(self.waiting.pop())
                self._num_unstarted += seq.request.adapter is not None
                continue
            cached, left = self._cached(seq), budget - slots
            new_tokens, drafts = seq.num_tokens - cached.tokens, 0
            if new_tokens == 1:
                padding = self._padding(cached.tokens, prefills=prefills, runs=runs)
                if padding is None or 1 + padding > left:
                    break
                drafts = padding
                new_tokens += drafts
            if 0 < threshold < new_tokens:
                new_tokens = threshold
            if new_tokens > left and not self._knobs.enable_chunked_prefill:
                if not self._version.tries_behind_too_long:
                    break
                skipped.append(self.waiting.pop())
                continue
            new_tokens = self._cut(seq, cached.tokens, min(new_tokens, left))
            if not new_tokens:
                break
            if drafts and new_tokens != 1 + drafts:
                new_tokens, drafts = 1, 0
            new_tokens = self._allowed(seq, cached.tokens, new_tokens)
            if not new_tokens:
                unready.append(self.waiting.pop())
                self._num_unencoded += 1
                continue
            fit_tokens = cached.tokens + new_tokens - drafts
            if self._knobs.fits_whole:
                fit_tokens = max(fit_tokens, seq.num_tokens)
            if not self._admit_first(plan, cached, new_tokens, fit_tokens, drafts):
                break
            budget -= new_tokens + slots
        self._stopped_at = self.waiting.head
        for seq in skipped:
            self.waiting.put_back(seq)  # one by one to the front: they return in reverse order
        for seq in reversed(unready):
            self.waiting.put_back(seq)
