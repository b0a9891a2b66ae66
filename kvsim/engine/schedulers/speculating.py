"""Continuous batching with speculative decoding: each step of a decoding sequence verifies its
newest token and its drafts, sequence by sequence. These are vLLM's rules; lockstep_scheduler.py
gives the same results faster.
"""

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.speculation.verifier import NextStep, Verifier
from kvsim.sequence import Sequence, by_order


@mypyc_attr(allow_interpreted_subclasses=True)
class SpeculatingScheduler(ContinuousScheduler):
    """Every step of a sequence is a chunk of its plan. verifier: decides which drafts are
    accepted.
    """

    def __init__(self, parts: ContinuousParts, verifier: Verifier) -> None:
        super().__init__(parts)
        self.verifier = verifier
        self._input_slots = verifier.input_slots

    # --- prompts --------------------------------------------------------------------------------

    def _allowed(self, seq: Sequence, start_tokens: int, new_tokens: int) -> int:
        """Tokens of a chunk that leave enough of the prompt for the drafter to read ahead."""
        new_tokens = super()._allowed(seq, start_tokens, new_tokens)
        return self.verifier.clear_of_end(seq, start_tokens, new_tokens)

    def _padding(self, cached_tokens: int, *, prefills: bool, runs: bool) -> int | None:
        if self._version.pads_in_idle_engine:
            return self.verifier.padding(cached_tokens, prefills=prefills, runs=runs)
        return self.verifier.padding_beside(cached_tokens, prefills=prefills, runs=runs)

    def _compute(self, seq: Sequence, plan: Plan, new_tokens: int, drafts: int = 0) -> None:
        super()._compute(seq, plan, new_tokens, drafts)
        self.verifier.began(plan.chunks[-1])

    # --- running sequences ----------------------------------------------------------------------

    def _continue_running(self, plan: Plan, budget: int, threshold: int) -> int:
        """Each in its turn: a prompt goes on, or the drafts of a decoding sequence are verified."""
        verifier = self.verifier
        slots, spent = verifier.input_slots, 0
        running, prefilling, chunks = self.running, self.prefilling, plan.chunks
        turned: set[Sequence] = set()
        lost = 0
        for seq in list(running):
            left = budget - spent - slots
            if left <= 0:
                break
            if plan.preempted and seq not in running:
                continue
            if lost:
                lost -= 1
                continue
            num_chunks, num_victims = len(chunks), len(plan.preempted)
            if prefilling and seq in prefilling:
                going = self._continue_prompt(seq, plan, left, threshold)
            else:
                step = self._next_step(seq, min(left, threshold or left))
                going = step is None or self._verify(step, plan)
            if chunks and chunks[-1].seq is seq:
                turned.add(seq)
            if len(plan.preempted) > num_victims:
                lost = self._turns_lost(seq, plan.preempted[num_victims:], turned)
                spent = sum(chunk.new_tokens + slots for chunk in chunks)
            elif len(chunks) > num_chunks:
                spent += chunks[-1].new_tokens + slots
            if not going:
                break
        if len(chunks) < len(running):
            decoding = (seq for seq in running if seq not in prefilling)
            plan.passed_over = self._without_step(plan, decoding)
        return budget - spent

    def _next_step(self, seq: Sequence, most_tokens: int) -> NextStep | None:
        """See `Verifier.next_step`."""
        return self.verifier.next_step(seq, most_tokens)

    def _without_step(self, plan: Plan, decoding: Iterable[Sequence]) -> list[Sequence]:
        """Those of `decoding` that run, lack output tokens and have no step in `plan`."""
        running, stepping = self.running, {chunk.seq for chunk in plan.chunks}
        return [
            seq
            for seq in decoding
            if seq in running and seq not in stepping and seq.num_outputs < seq.output_tokens
        ]

    def _verify(self, step: NextStep, plan: Plan) -> bool:
        """A decoding sequence takes its step; False ends the loop over running sequences."""
        chunk, returned, known = step
        seq, computed = chunk.seq, chunk.prior_tokens + chunk.new_tokens
        verify = self.allocator.verify
        if not verify(seq, computed, returned, known, chunk.end_tokens):

            def again() -> bool:
                return verify(seq, computed, returned, known, chunk.end_tokens)

            if not self._preempt_until(again, seq, plan):
                return self._continues
        self.verifier.take(chunk)
        plan.chunks.append(chunk)
        return True

    def _join(self, seq: Sequence) -> None:
        """No sequence joins a batch: all decode by chunks."""

    def _preempt(self, victim: Sequence, plan: Plan) -> None:
        for chunk in plan.chunks:
            if chunk.seq is victim:
                self.verifier.undone(chunk)
        super()._preempt(victim, plan)
        self.verifier.preempted(victim)

    # --- the life of a plan ---------------------------------------------------------------------

    def finish(self, plan: Plan) -> list[Sequence]:
        """See `Scheduler.finish`; in order, as content of one sequence may duplicate that of
        another.
        """
        plan.finishing.sort(key=by_order)
        finishing = set(plan.finishing)
        for chunk in plan.chunks:
            self.verifier.returned(chunk)
            if chunk.seq in finishing:
                self._leave(chunk.seq)
            elif chunk.samples and chunk.seq in self.running:
                self.allocator.checkpoint(chunk.seq, chunk.end_tokens)
        return plan.finishing
