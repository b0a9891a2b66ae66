"""Drafts verified by all in step with each other: the same as in turns (speculating.py) while the
budget reaches everybody. Then nobody is looked at who takes no block, and a run of steps is taken
at once. `tests/engine/speculation/test_leaps.py` compares the two.
"""

from collections import deque
from collections.abc import Callable, Mapping
from itertools import takewhile

from kvsim.engine.plan import Plan, ScheduledChunk
from kvsim.engine.policies.policies import Policies
from kvsim.engine.policies.victims.latest import Latest
from kvsim.engine.schedulers.continuous import Knobs
from kvsim.engine.schedulers.scheduler import by_order
from kvsim.engine.schedulers.speculating import SpeculatingScheduler
from kvsim.engine.schedulers.vllm_versions import VllmVersion
from kvsim.engine.speculation.together import VerifyingBatch
from kvsim.engine.speculation.verifier import Verifier
from kvsim.memory.allocator import Allocator
from kvsim.memory.verifying import Verifying
from kvsim.plumbing.errors import InvariantError
from kvsim.sequence import Sequence
from kvsim.step import StepShape

LONGEST_RUN = 16  # steps, each of which is timed before it is known how many will be taken
REST = 32  # steps in turns, once the budget was short, before anybody is in step again


class StepInFlight:
    """A step of those in step that has not returned: how many they were, how many of their drafts
    it accepts, and what it was for those who are not in step any more.
    """

    def __init__(self, num: int, accepted: int) -> None:
        self.num, self.accepted = num, accepted
        self.parted: list[ScheduledChunk] = []


class InStepScheduler(SpeculatingScheduler):
    """together: who verifies in step; None: nobody. A sequence that runs and is neither in it nor
    `prefilling` takes its turn.
    """

    def __init__(
        self,
        allocator: Allocator,
        max_model_len: int,
        policies: Policies,
        version: VllmVersion,
        knobs: Knobs,
    ) -> None:
        super().__init__(allocator, max_model_len, policies, version, knobs)
        assert self.verifier is not None
        self._verify_tokens = self.verifier.most_tokens
        self._cost_tokens = self._verify_tokens + self.verifier.input_slots
        self.together: VerifyingBatch | None = None
        self._rest = 0
        self._in_flight: deque[StepInFlight] = deque()

    def verify_together(self, depth: int) -> None:
        tables, threshold = self.allocator.verifying, self._knobs.long_prefill_token_threshold
        latest = type(self.victim) is Latest and not self._knobs.by_priority
        if tables is None or not latest or 0 < threshold < self._verify_tokens:
            return
        assert self.verifier is not None
        drafts = self._verify_tokens - 1
        behind = max(1, self.verifier.lookahead_slots)
        last_start = self.max_model_len - self._verify_tokens - behind
        self.together = VerifyingBatch(drafts, last_start, lags=depth > 1)

    @property
    def _tables(self) -> Verifying:
        tables = self.allocator.verifying
        assert tables is not None
        return tables

    # --- running sequences ----------------------------------------------------------------------

    def _run_drafted(self, verifier: Verifier, plan: Plan, budget: int, threshold: int) -> int:
        batch = self.together
        if batch is None or not batch.num:
            self._rest = max(0, self._rest - 1)
            return super()._run_drafted(verifier, plan, budget, threshold)
        early = self._early_prefills()
        least = (len(self.running) - len(self.prefilling)) * self._cost_tokens
        for seq in early:
            tokens = seq.num_tokens - seq.num_computed
            least += min(tokens, threshold or tokens) + verifier.input_slots
        if least <= budget:
            return self._run_in_step(verifier, batch, plan, budget, threshold, early)
        for seq in batch.members():
            self._leave_step(batch, seq)
        self._rest = REST
        return super()._run_drafted(verifier, plan, budget, threshold)

    def _early_prefills(self) -> list[Sequence]:
        """Prefilling sequences that were admitted before a decoding one."""
        prefilling = self.prefilling
        last = takewhile(prefilling.__contains__, reversed(self.running)) if prefilling else ()
        return list(prefilling)[: len(prefilling) - sum(1 for _ in last)]

    def _run_in_step(
        self,
        verifier: Verifier,
        batch: VerifyingBatch,
        plan: Plan,
        budget: int,
        threshold: int,
        early: list[Sequence],
    ) -> int:
        """The members take their step, whoever decodes beside them its turn, then prompts go on.
        early: prompts that go on in their turn before that, for all of which the budget lasts.
        """
        tables, running, chunks = self._tables, self.running, plan.chunks
        late = list(self.prefilling)[len(early) :]
        alone: list[Sequence] = []
        if len(running) > batch.num + len(self.prefilling):
            alone = [seq for seq in running if seq not in batch and seq not in self.prefilling]
        going = True
        for seq in sorted({*tables.movers(), *alone, *early}, key=by_order):
            if seq not in running:
                continue
            if seq in batch:
                going = tables.take(seq) or self._preempt_until(_takes(tables, seq), seq, plan)
            elif seq in self.prefilling:
                going = self._continue_prompt(seq, plan, budget, threshold)
            else:
                step = verifier.next_step(seq, threshold or budget)
                going = step is None or self._verify(verifier, step, plan)
            if not going:
                break
        plan.passed_over = _passed_over(plan, alone, running)
        self._step(batch, plan)
        slots = verifier.input_slots
        spent = plan.num_decode * self._cost_tokens + sum(c.new_tokens + slots for c in chunks)
        for seq in late if going else ():
            left = budget - spent - slots
            if left <= 0 or not self._continue_prompt(seq, plan, left, threshold):
                break
            spent = plan.num_decode * self._cost_tokens
            spent += sum(chunk.new_tokens + slots for chunk in chunks)
        return budget - spent

    def _step(self, batch: VerifyingBatch, plan: Plan) -> None:
        """Who is in step has what its next one needs, and takes it."""
        num = batch.num
        if not num:
            return
        plan.num_decode, plan.num_drafts = num, num * (self._verify_tokens - 1)
        (shape,) = self._shapes(batch, 1)
        plan.context_tokens = shape.context_tokens
        plan.longest_context_tokens = shape.longest_context_tokens
        self._advance(batch, plan)

    def _advance(self, batch: VerifyingBatch, plan: Plan) -> None:
        new_slots, accepted = batch.advance()
        self._tables.advance(new_slots)
        self._in_flight.append(StepInFlight(batch.num, accepted))
        plan.decode_slots = new_slots

    def _leave_step(self, batch: VerifyingBatch, seq: Sequence) -> None:
        """`seq` takes its turns from now on; what it did in step returns to it alone."""
        self._tables.leave(seq)
        steps = batch.last_steps(seq, len(self._in_flight))
        batch.leave(seq)
        if steps:
            seq.drafting.under_way = steps[0]
        for step, chunk in zip(reversed(self._in_flight), steps, strict=False):
            step.parted.append(chunk)

    # --- who is in step -------------------------------------------------------------------------

    def _join(self, seq: Sequence, num_tokens: int) -> None:
        batch = self.together
        if batch is None or self._rest or seq in batch:
            return
        ahead = batch.join(seq)
        if ahead is not None:
            self._tables.join(seq, ahead)

    def _complete(self, plan: Plan) -> None:
        batch = self.together
        if batch is None:
            return
        for seq in batch.complete():
            self._leave_step(batch, seq)
            if seq.num_outputs == seq.output_tokens:
                plan.finishing.append(seq)

    def _preempt(self, victim: Sequence, plan: Plan) -> None:
        if self.together is not None and victim in self.together:
            self._leave_step(self.together, victim)
        super()._preempt(victim, plan)

    # --- the life of a plan ---------------------------------------------------------------------

    def repeatable(self, plan: Plan, limit: int) -> int:
        batch = self.together
        if batch is None or not plan.num_drafts or len(self.running) != batch.num:
            return 0
        if plan.chunks or plan.passed_over or plan.preempted or plan.finishing or plan.stalls:
            return 0
        limit = min(limit, batch.steps_to_leave(), LONGEST_RUN)
        limit = self._tables.steps_that_fit(limit)
        head = self.waiting.head
        if head is not None and limit:
            assert self.verifier is not None
            if self.verifier.reads_far_ahead:
                return 0
            limit = self._tables.steps_alike(head, limit)
        return limit

    def shapes_ahead(self, steps: int) -> list[StepShape]:
        assert self.together is not None
        return self._shapes(self.together, steps)

    def _shapes(self, batch: VerifyingBatch, steps: int) -> list[StepShape]:
        """Of the next steps of those in step."""
        num, tokens = batch.num, self._verify_tokens
        if not num:
            return [StepShape((), 0, 0)] * steps
        return [
            StepShape(
                (), num, context + num * tokens, batch.longest(later) + tokens, num * (tokens - 1)
            )
            for later, context in enumerate(batch.contexts(steps))
        ]

    def returns_quietly(self, plan: Plan) -> bool:
        return not plan.finishing and (
            self.waiting.head is None or not any(chunk.samples for chunk in plan.chunks)
        )

    def repeat_once(self, plan: Plan) -> None:
        batch = self.together
        assert batch is not None
        for seq in self._tables.movers():
            if not self._tables.take(seq):
                raise InvariantError(f"{seq} verifies drafts in slots it does not hold")
        self._advance(batch, plan)
        self.allocator.step_decided()
        plan.steps += 1
        self._complete(plan)

    def return_once(self) -> None:
        assert self.together is not None
        self._return_step(self.together, [], [])

    def finish(self, plan: Plan) -> list[Sequence]:
        if self.together is None or not plan.num_drafts:
            return super().finish(plan)
        plan.finishing.sort(key=by_order)
        self._return_step(self.together, plan.chunks, plan.finishing)
        return plan.finishing

    def _return_step(
        self, batch: VerifyingBatch, turns: list[ScheduledChunk], finishing: list[Sequence]
    ) -> None:
        """The oldest step in flight has returned, to one after the other: what one makes known may
        be what another has been. turns: what was computed in it by who is not in step.
        """
        verifier, tables, step = self.verifier, self._tables, self._in_flight.popleft()
        assert verifier is not None
        verifier.returned_together(step.num, step.accepted)
        chunks = {chunk.seq: chunk for chunk in (*step.parted, *turns)}
        for chunk in step.parted:
            verifier.told(chunk)
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


def _takes(tables: Verifying, seq: Sequence) -> Callable[[], bool]:
    return lambda: tables.take(seq)


def _passed_over(
    plan: Plan, alone: list[Sequence], running: Mapping[Sequence, None]
) -> list[Sequence]:
    """Who of these decodes and has no step in this plan."""
    if not alone:
        return []
    stepping = {chunk.seq for chunk in plan.chunks}
    return [
        seq
        for seq in alone
        if seq in running and seq not in stepping and seq.num_outputs < seq.output_tokens
    ]
