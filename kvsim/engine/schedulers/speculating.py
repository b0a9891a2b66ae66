"""Continuous batching where tokens are drafted ahead: each step of a decoding sequence verifies its
newest token and its drafts, one sequence after the other. This is what the rules say; in_step.py
comes to the same at less cost.
"""

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.speculation.verifier import NextStep, Verifier
from kvsim.sequence import Sequence


class SpeculatingScheduler(ContinuousScheduler):
    """Every step of a sequence is a chunk of its plan."""

    def _run_drafted(self, verifier: Verifier, plan: Plan, budget: int, threshold: int) -> int:
        """Each in its turn: a prompt goes on, or the drafts of a decoding sequence are verified."""
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
                step = verifier.next_step(seq, min(left, threshold or left))
                going = step is None or self._verify(verifier, step, plan)
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
            stepping = {chunk.seq for chunk in chunks}
            idle = [seq for seq in running if seq not in stepping]
            plan.passed_over = [
                seq for seq in idle if seq not in prefilling and seq.num_outputs < seq.output_tokens
            ]
        return budget - spent

    def _verify(self, verifier: Verifier, step: NextStep, plan: Plan) -> bool:
        """A decoding sequence takes its step; False ends the loop over running sequences."""
        chunk, returned, known = step
        seq, computed = chunk.seq, chunk.prior_tokens + chunk.new_tokens
        verify = self.allocator.verify
        if not verify(seq, computed, returned, known, chunk.end_tokens):

            def again() -> bool:
                return verify(seq, computed, returned, known, chunk.end_tokens)

            if not self._preempt_until(again, seq, plan):
                return self._goes_on
        verifier.take(chunk)
        plan.chunks.append(chunk)
        return True
