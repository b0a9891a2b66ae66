"""Schedules sequences with drafts as a batch: all verify their drafts in one step.

This equals scheduling one after the other while the token budget suffices for all. Only sequences
that take blocks are visited, and a run of steps is scheduled at once.
`tests/engine/speculation/test_leaps.py` compares the two.
"""

from functools import partial
from itertools import takewhile

from kvsim.engine.plan import Plan, ScheduledChunk
from kvsim.engine.policies.victims.latest import Latest
from kvsim.engine.schedulers.batch_runs import BatchRuns
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.running_loop import RunningLoop
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.speculation.lockstep_batch import LockstepBatch
from kvsim.memory.verifying import Verifying
from kvsim.sequence import Sequence, by_order

LONGEST_RUN = 16  # steps, each of which is timed before the length of the run is known
REST = 32  # steps in turns after the budget was short


class DraftRuns(BatchRuns):
    """Schedules the lockstep batch `batch`.

    A running sequence that is neither in the batch nor in `prefilling` is scheduled by the loop.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        loop: RunningLoop,
        parts: ContinuousParts,
        tables: Verifying,
        *,
        lags: bool,
    ) -> None:
        super().__init__(scheduler, loop, parts)
        drafter = parts.drafter
        after = max(1, drafter.lookahead_slots)
        self.batch = LockstepBatch(
            scheduler.allocator,
            tables,
            drafter.most_tokens - 1,
            parts.max_model_len - drafter.most_tokens - after,
            lags=lags,
        )
        self._cost_tokens = drafter.most_tokens + drafter.input_slots  # of a member's step
        self._rest = 0  # steps in turns before the batch again

    def run(self, plan: Plan, budget: int, threshold: int) -> int | None:
        scheduler, batch = self._scheduler, self.batch
        if not batch.num:
            self._rest = max(0, self._rest - 1)
            return None
        early = self._early_prefills()
        least = (len(scheduler.running) - len(scheduler.prefilling)) * self._cost_tokens
        for seq in early:
            tokens = seq.num_tokens - seq.num_computed
            least += min(tokens, threshold or tokens) + self._drafter.input_slots
        if least <= budget:
            return self._run(plan, budget, threshold, early)
        for seq in batch.members():
            batch.leave(seq)
        self._rest = REST
        return None

    def _early_prefills(self) -> list[Sequence]:
        """Prefilling sequences that were admitted before some decoding one."""
        prefilling = self._scheduler.prefilling
        running = self._scheduler.running
        last = takewhile(prefilling.__contains__, reversed(running)) if prefilling else ()
        return list(prefilling)[: len(prefilling) - sum(1 for _ in last)]

    def _run(self, plan: Plan, budget: int, threshold: int, early: list[Sequence]) -> int:
        """Schedule the batch's members, then other decoding sequences one by one, then prompt
        chunks; returns the remaining budget.

        early: prefilling sequences that come earlier in vLLM's order and are scheduled in that
        order, within the budget.
        """
        scheduler, loop, batch, chunks = self._scheduler, self._loop, self.batch, plan.chunks
        running, prefilling = scheduler.running, scheduler.prefilling
        late = list(prefilling)[len(early) :]
        alone: list[Sequence] = []
        if len(running) > batch.num + len(prefilling):
            alone = [seq for seq in running if seq not in batch and seq not in prefilling]
        # A sequence without room preempts the last one; where that is itself, none after it runs.
        for seq in sorted({*batch.due(), *alone, *early}, key=by_order):
            if seq not in running:
                continue
            if seq in batch:
                if not batch.take(seq):
                    loop.preempt_until(partial(batch.take, seq), seq, plan)
            elif seq in prefilling:
                loop.continue_prompt(seq, plan, budget, threshold)
            else:
                loop.verify(seq, plan, threshold or budget)
        plan.passed_over = loop.without_step(plan, alone) if alone else []
        self._step(plan)
        slots = self._drafter.input_slots
        spent = plan.num_decode * self._cost_tokens + sum(c.new_tokens + slots for c in chunks)
        for seq in late:
            left = budget - spent - slots
            if left <= 0 or not loop.continue_prompt(seq, plan, left, threshold):
                break
            spent = plan.num_decode * self._cost_tokens
            spent += sum(chunk.new_tokens + slots for chunk in chunks)
        return budget - spent

    def _step(self, plan: Plan) -> None:
        """Take the next step of all members, and set its counts in `plan`."""
        batch, drafts = self.batch, self._drafter.most_tokens - 1
        num = batch.num
        if not num:
            return
        plan.num_decode, plan.num_drafts = num, num * drafts
        (shape,) = batch.shapes(1)
        plan.context_tokens = shape.context_tokens
        plan.longest_context_tokens = shape.longest_context_tokens
        batch.step()
        plan.decode_slots = batch.new_slots

    def join(self, seq: Sequence) -> None:
        if not self._rest and seq not in self.batch:
            self.batch.join(seq, seq.num_computed)

    def outputs(self, plan: Plan) -> dict[Sequence, int]:
        return self.batch.outputs() if plan.num_drafts else {}

    def repeated(self, plan: Plan) -> None:
        plan.decode_slots = self.batch.new_slots

    def step_returned(self) -> None:
        self._return_step([], [])

    def verified(self, plan: Plan) -> None:
        if not plan.num_drafts:
            super().verified(plan)
            return
        plan.finishing.sort(key=by_order)
        self._scheduler.limits.returned(plan, plan.finishing)
        self._return_step(plan.chunks, plan.finishing)

    def _return_step(self, turns: list[ScheduledChunk], finishing: list[Sequence]) -> None:
        """Process the outputs of the oldest step in flight, in running order, since one sequence
        may cache the same content as another.

        turns: chunks of sequences outside the batch. finishing: sequences that finish.
        """
        scheduler, tables = self._scheduler, self.batch.tables
        drafter, step = self._drafter, self.batch.in_flight.popleft()
        drafter.lockstep_returned(step.num, step.accepted)
        chunks = {chunk.seq: chunk for chunk in (*step.left, *turns)}
        for chunk in step.left:
            drafter.returned(chunk, counted=True)
        for chunk in turns:
            drafter.returned(chunk)
        actors = {*finishing, *tables.step_returned(), *chunks}
        for seq in sorted(actors, key=by_order) if len(actors) > 1 else actors:
            if seq in finishing:
                scheduler.leave(seq)
            elif seq not in chunks:
                tables.returned(seq)
            elif chunks[seq].samples and seq in scheduler.running:
                scheduler.allocator.checkpoint(seq, chunks[seq].end_tokens)


def draft_runs(
    scheduler: Scheduler, loop: RunningLoop, parts: ContinuousParts, *, lags: bool
) -> DraftRuns | None:
    """The batch of a scheduler with drafts; None if its sequences must be scheduled one by one.

    lags: scheduling is asynchronous, a step ahead of its outputs.
    """
    tables, knobs = scheduler.allocator.verifying, parts.knobs
    threshold, latest = knobs.long_prefill_token_threshold, type(scheduler.victim) is Latest
    cut = 0 < threshold < parts.drafter.most_tokens
    if tables is None or not latest or knobs.by_priority or cut:
        return None
    return DraftRuns(scheduler, loop, parts, tables, lags=lags)
