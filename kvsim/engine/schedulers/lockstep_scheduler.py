"""Verification of drafts in lockstep: equal to turns (speculating.py) while the budget suffices for
all sequences. Only sequences that take blocks are visited, and a run of steps is taken at once.
`tests/engine/speculation/test_leaps.py` compares the two.
"""

from functools import partial
from itertools import takewhile

from kvsim.engine.plan import Plan, ScheduledChunk
from kvsim.engine.policies.victims.latest import Latest
from kvsim.engine.schedulers.speculating import SpeculatingScheduler
from kvsim.engine.speculation.lockstep_batch import LockstepBatch
from kvsim.memory.ledger import Course
from kvsim.sequence import Sequence, by_order

LONGEST_RUN = 16  # steps, each of which is timed before the length of the run is known
REST = 32  # steps in turns after the budget was short


class LockstepScheduler(SpeculatingScheduler):
    """lockstep: the decode batch, if sequences verify in lockstep. A running sequence that is
    neither in it nor in `prefilling` takes its turn.
    """

    lockstep: LockstepBatch | None = None
    _rest = 0  # steps in turns before lockstep again

    @property
    def _cost_tokens(self) -> int:
        """Tokens of the budget that a member's step takes."""
        return self.verifier.most_tokens + self.verifier.input_slots

    def enable_lockstep(self, depth: int) -> None:
        tables, threshold = self.allocator.verifying, self._knobs.long_prefill_token_threshold
        latest = type(self.victim) is Latest and not self._knobs.by_priority
        verify_tokens = self.verifier.most_tokens
        if tables is None or not latest or 0 < threshold < verify_tokens:
            return
        behind = max(1, self.verifier.lookahead_slots)
        last_start = self.max_model_len - verify_tokens - behind
        self.batch = self.lockstep = LockstepBatch(
            self.allocator, tables, verify_tokens - 1, last_start, lags=depth > 1
        )

    # --- running sequences ----------------------------------------------------------------------

    def _continue_running(self, plan: Plan, budget: int, threshold: int) -> int:
        batch = self.lockstep
        if batch is None or not batch.num:
            self._rest = max(0, self._rest - 1)
            return super()._continue_running(plan, budget, threshold)
        early = self._early_prefills()
        least = (len(self.running) - len(self.prefilling)) * self._cost_tokens
        for seq in early:
            tokens = seq.num_tokens - seq.num_computed
            least += min(tokens, threshold or tokens) + self._input_slots
        if least <= budget:
            return self._run_in_step(batch, plan, budget, threshold, early)
        for seq in batch.members():
            batch.leave(seq)
        self._rest = REST
        return super()._continue_running(plan, budget, threshold)

    def _early_prefills(self) -> list[Sequence]:
        """Prefilling sequences that were admitted before a decoding one."""
        prefilling = self.prefilling
        last = takewhile(prefilling.__contains__, reversed(self.running)) if prefilling else ()
        return list(prefilling)[: len(prefilling) - sum(1 for _ in last)]

    def _run_in_step(
        self,
        batch: LockstepBatch,
        plan: Plan,
        budget: int,
        threshold: int,
        early: list[Sequence],
    ) -> int:
        """The members take their step, other decoding sequences their turn, then prompts go on.
        early: prompts that go on in their turn before that, within the budget.
        """
        verifier, running, chunks = self.verifier, self.running, plan.chunks
        late = list(self.prefilling)[len(early) :]
        alone: list[Sequence] = []
        if len(running) > batch.num + len(self.prefilling):
            alone = [seq for seq in running if seq not in batch and seq not in self.prefilling]
        # Who finds no room preempts the last, and at last itself: then nobody runs behind it.
        for seq in sorted({*batch.due(), *alone, *early}, key=by_order):
            if seq not in running:
                continue
            if seq in batch:
                if not batch.take(seq):
                    self._preempt_until(partial(batch.take, seq), seq, plan)
            elif seq in self.prefilling:
                self._continue_prompt(seq, plan, budget, threshold)
            else:
                step = verifier.next_step(seq, threshold or budget)
                if step is not None:
                    self._verify(step, plan)
        plan.passed_over = self._without_step(plan, alone) if alone else []
        self._step(batch, plan)
        slots = verifier.input_slots
        spent = plan.num_decode * self._cost_tokens + sum(c.new_tokens + slots for c in chunks)
        for seq in late:
            left = budget - spent - slots
            if left <= 0 or not self._continue_prompt(seq, plan, left, threshold):
                break
            spent = plan.num_decode * self._cost_tokens
            spent += sum(chunk.new_tokens + slots for chunk in chunks)
        return budget - spent

    def _step(self, batch: LockstepBatch, plan: Plan) -> None:
        """Allocate for the next step of the members, and take it."""
        num = batch.num
        if not num:
            return
        plan.num_decode, plan.num_drafts = num, num * (self.verifier.most_tokens - 1)
        (shape,) = batch.shapes(1)
        plan.context_tokens = shape.context_tokens
        plan.longest_context_tokens = shape.longest_context_tokens
        batch.step()
        plan.decode_slots = batch.new_slots

    def _join(self, seq: Sequence) -> None:
        if self.lockstep is not None and not self._rest and seq not in self.lockstep:
            self.lockstep.join(seq, seq.num_computed)

    # --- the life of a plan ---------------------------------------------------------------------

    def repeatable(self, plan: Plan, limit: int) -> int:
        if not plan.num_drafts or len(self.running) != self.batch.num:
            return 0
        if self.waiting.head is not None and self.verifier.reads_far_ahead:
            return 0
        return super().repeatable(plan, min(limit, LONGEST_RUN))

    def returns_quietly(self, plan: Plan) -> bool:
        return not plan.finishing and (
            self.waiting.head is None or not any(chunk.samples for chunk in plan.chunks)
        )

    def repeat(self, plan: Plan, steps: int) -> Course:
        course = super().repeat(plan, steps)
        if self.lockstep is not None:
            plan.decode_slots = self.lockstep.new_slots
        return course

    def step_returned(self) -> None:
        if self.lockstep is not None:
            self._return_step(self.lockstep, [], [])

    def finish(self, plan: Plan) -> list[Sequence]:
        if self.lockstep is None or not plan.num_drafts:
            return super().finish(plan)
        plan.finishing.sort(key=by_order)
        self._return_step(self.lockstep, plan.chunks, plan.finishing)
        return plan.finishing

    def _return_step(
        self, batch: LockstepBatch, turns: list[ScheduledChunk], finishing: list[Sequence]
    ) -> None:
        """The oldest step in flight returned: process its sequences in order, as content of one may
        duplicate that of another. turns: its chunks of sequences outside of lockstep.
        """
        verifier, tables, step = self.verifier, batch.tables, batch.in_flight.popleft()
        verifier.lockstep_returned(step.num, step.accepted)
        chunks = {chunk.seq: chunk for chunk in (*step.left, *turns)}
        for chunk in step.left:
            verifier.returned(chunk, counted=True)
        for chunk in turns:
            verifier.returned(chunk)
        actors = {*finishing, *tables.step_returned(), *chunks}
        for seq in sorted(actors, key=by_order) if len(actors) > 1 else actors:
            if seq in finishing:
                self._leave(seq)
            elif seq not in chunks:
                tables.returned(seq)
            elif chunks[seq].samples and seq in self.running:
                self.allocator.checkpoint(seq, chunks[seq].end_tokens)
