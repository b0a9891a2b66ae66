"""All sequences verify their drafts in one step, as a batch: equal to turns while the budget
suffices for all of them. Only sequences that take blocks are visited, and a run of steps is taken
at once. `tests/engine/speculation/test_leaps.py` compares the two.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile
from typing import Protocol

from kvsim.engine.plan import Plan, ScheduledChunk
from kvsim.engine.policies.victims.latest import Latest
from kvsim.engine.policies.victims.victim import Victim
from kvsim.engine.schedulers.knobs import Knobs
from kvsim.engine.speculation.lockstep_batch import LockstepBatch
from kvsim.engine.speculation.verifier import Verifier
from kvsim.memory.allocator import Allocator
from kvsim.memory.verifying import Verifying
from kvsim.sequence import Sequence, by_order

LONGEST_RUN = 16  # steps, each of which is timed before the length of the run is known
REST = 32  # steps in turns after the budget was short


class TakesTurns(Protocol):
    """The scheduler of the batch; see `ContinuousScheduler`."""

    allocator: Allocator
    drafter: Verifier
    max_model_len: int
    prefilling: dict[Sequence, None]
    running: dict[Sequence, None]
    victim: Victim

    def continue_prompt(self, seq: Sequence, plan: Plan, budget: int, threshold: int) -> bool: ...

    def verify(self, seq: Sequence, plan: Plan, most_tokens: int) -> bool: ...

    def without_step(self, plan: Plan, decoding: Iterable[Sequence]) -> list[Sequence]: ...

    def preempt_until(self, took: Callable[[], bool], seq: Sequence, plan: Plan) -> bool: ...

    def leave(self, seq: Sequence) -> None: ...


class DraftRuns:
    """batch: the decode batch of its scheduler.

    A running sequence that is neither in it nor in `prefilling` is scheduled singly.
    """

    def __init__(self, scheduler: TakesTurns, tables: Verifying, *, lags: bool) -> None:
        self._scheduler, drafter = scheduler, scheduler.drafter
        behind = max(1, drafter.lookahead_slots)
        self.batch = LockstepBatch(
            scheduler.allocator,
            tables,
            drafter.most_tokens - 1,
            scheduler.max_model_len - drafter.most_tokens - behind,
            lags=lags,
        )
        self._cost_tokens = drafter.most_tokens + drafter.input_slots  # of a member's step
        self._rest = 0  # steps in turns before the batch again

    def run(self, plan: Plan, budget: int, threshold: int) -> int | None:
        """Schedule the running sequences.

        budget: tokens; returns the rest of it. None: nothing is scheduled, and the sequences must
        be scheduled one after the other.
        """
        scheduler, batch = self._scheduler, self.batch
        if not batch.num:
            self._rest = max(0, self._rest - 1)
            return None
        early = self._early_prefills()
        least = (len(scheduler.running) - len(scheduler.prefilling)) * self._cost_tokens
        for seq in early:
            tokens = seq.num_tokens - seq.num_computed
            least += min(tokens, threshold or tokens) + scheduler.drafter.input_slots
        if least <= budget:
            return self._run(plan, budget, threshold, early)
        for seq in batch.members():
            batch.leave(seq)
        self._rest = REST
        return None

    def _early_prefills(self) -> list[Sequence]:
        """Prefilling sequences that were admitted before a decoding one."""
        prefilling = self._scheduler.prefilling
        running = self._scheduler.running
        last = takewhile(prefilling.__contains__, reversed(running)) if prefilling else ()
        return list(prefilling)[: len(prefilling) - sum(1 for _ in last)]

    def _run(self, plan: Plan, budget: int, threshold: int, early: list[Sequence]) -> int:
        """Schedule the batch's members, then other decoding sequences one by one, then prompt
        chunks.

        early: prompts that precede these in vLLM's order and are scheduled first, within the
        budget.
        """
        scheduler, batch, chunks = self._scheduler, self.batch, plan.chunks
        running, prefilling = scheduler.running, scheduler.prefilling
        late = list(prefilling)[len(early) :]
        alone: list[Sequence] = []
        if len(running) > batch.num + len(prefilling):
            alone = [seq for seq in running if seq not in batch and seq not in prefilling]
        # Who finds no room preempts the last, and at last itself: then nobody runs behind it.
        for seq in sorted({*batch.due(), *alone, *early}, key=by_order):
            if seq not in running:
                continue
            if seq in batch:
                if not batch.take(seq):
                    scheduler.preempt_until(partial(batch.take, seq), seq, plan)
            elif seq in prefilling:
                scheduler.continue_prompt(seq, plan, budget, threshold)
            else:
                scheduler.verify(seq, plan, threshold or budget)
        plan.passed_over = scheduler.without_step(plan, alone) if alone else []
        self._step(plan)
        slots = scheduler.drafter.input_slots
        spent = plan.num_decode * self._cost_tokens + sum(c.new_tokens + slots for c in chunks)
        for seq in late:
            left = budget - spent - slots
            if left <= 0 or not scheduler.continue_prompt(seq, plan, left, threshold):
                break
            spent = plan.num_decode * self._cost_tokens
            spent += sum(chunk.new_tokens + slots for chunk in chunks)
        return budget - spent

    def _step(self, plan: Plan) -> None:
        """Allocate for the next step of the members, and take it."""
        batch, drafts = self.batch, self._scheduler.drafter.most_tokens - 1
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
        """`seq` has all its known tokens computed, and verifies from the next step on."""
        if not self._rest and seq not in self.batch:
            self.batch.join(seq, seq.num_computed)

    def return_step(self, turns: list[ScheduledChunk], finishing: list[Sequence]) -> None:
        """The oldest step in flight returned: process its sequences in order, as content of one may
        duplicate that of another. turns: its chunks of sequences outside of the batch.
        """
        scheduler, tables = self._scheduler, self.batch.tables
        drafter, step = scheduler.drafter, self.batch.in_flight.popleft()
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


def draft_runs(scheduler: TakesTurns, knobs: Knobs, *, lags: bool) -> DraftRuns | None:
    """The batch of a scheduler with drafts; None where its sequences always take turns. lags: a
    step is scheduled before the one before it has returned.
    """
    tables = scheduler.allocator.verifying
    threshold, latest = knobs.long_prefill_token_threshold, type(scheduler.victim) is Latest
    cut = 0 < threshold < scheduler.drafter.most_tokens
    if tables is None or not latest or knobs.by_priority or cut:
        return None
    return DraftRuns(scheduler, tables, lags=lags)
