"""vLLM's loop over running sequences (v1/core/sched/scheduler.py): one after the other, in order of
admission. A sequence without memory preempts others or, at last, itself.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Row

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.chunk_sizes import ChunkSizes
from kvsim.engine.schedulers.connection import Connection
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.in_flight import StepsInFlight
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.sequence import Sequence


class RunningLoop:
    """Schedules the running sequences of one scheduler one by one.

    continues: the loop continues after a sequence that preempted itself. stuck: the chosen victim
    has a step in flight, so no sequence was preempted.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        parts: ContinuousParts,
        sizes: ChunkSizes,
        connection: Connection,
        in_flight: StepsInFlight,
    ) -> None:
        self._scheduler, self._sizes = scheduler, sizes
        self._connection, self._in_flight = connection, in_flight
        self._drafter, self._drafts = parts.drafter, parts.drafter.verifies
        version, by_priority = parts.version, parts.knobs.by_priority
        self.continues = by_priority and version.continues_after_self_preemption
        self._skips_next = by_priority and version.preemption_skips_next
        self.stuck = False

    def run(self, plan: Plan, budget: int, threshold: int) -> int:
        """Schedule a chunk, a token or a verification of each running sequence; returns the
        remaining token budget.

        threshold: most tokens of one prompt, 0 for no such limit.
        """
        scheduler, chunks = self._scheduler, plan.chunks
        running, prefilling = scheduler.running, scheduler.prefilling
        slots, spent, lost = self._drafter.input_slots, 0, 0
        short = set[Sequence]() if self._drafts else set(scheduler.allocator.must_extend())
        decoded: set[Sequence] = set()
        turned: set[Sequence] = set()
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
                going = self.continue_prompt(seq, plan, left, threshold)
            elif seq.decoding:
                room = seq not in short or self.make_room(seq, plan, scheduler.batch.slots(seq) + 1)
                if room:
                    decoded.add(seq)
                    turned.add(seq)
                    spent += 1
                going = room or (self.continues and seq not in running)
            else:
                going = self.verify(seq, plan, min(left, threshold or left))
            if chunks and chunks[-1].seq is seq:
                turned.add(seq)
            if len(plan.preempted) > num_victims:
                lost = self._turns_lost(seq, plan.preempted[num_victims:], turned)
                spent = sum(chunk.new_tokens + slots for chunk in chunks)
                spent += sum(seq in running for seq in decoded)
            elif len(chunks) > num_chunks:
                spent += chunks[-1].new_tokens + slots
            if not going:
                break
        if not self._drafts:
            scheduler.step_decoders(plan, [s for s in running if s.decoding and s not in decoded])
        elif len(chunks) < len(running):
            decoding = (seq for seq in running if seq not in prefilling)
            plan.passed_over = self.without_step(plan, decoding)
        return budget - spent

    def _turns_lost(self, seq: Sequence, victims: Row[Sequence], turned: set[Sequence]) -> int:
        """Number of sequences after `seq` that the loop skips because of `victims`.

        turned: sequences scheduled already in this step.
        """
        if not self._skips_next:
            return 0
        return sum(victim.order < seq.order and victim not in turned for victim in victims)

    def continue_prompt(self, seq: Sequence, plan: Plan, budget: int, threshold: int) -> bool:
        """Schedule the next chunk of a running prompt; False ends the loop over running
        sequences.
        """
        running = self._scheduler.running
        if seq not in running:
            return True
        new_tokens = self._sizes.next(seq, budget, threshold)
        if not new_tokens:
            return True
        if not self.make_room(seq, plan, seq.num_computed + new_tokens):
            return self.continues and seq not in running
        self._scheduler.compute(seq, plan, new_tokens)
        return True

    def verify(self, seq: Sequence, plan: Plan, most_tokens: int) -> bool:
        """Schedule a verification of drafts of `seq`, if it may have a step; False ends the loop
        over running sequences.
        """
        if self._in_flight.step < seq.next_step:
            return True
        step = self._drafter.next_step(seq, most_tokens)
        if step is None:
            return True
        chunk, returned, known = step
        computed, verify = chunk.prior_tokens + chunk.new_tokens, self._scheduler.allocator.verify
        if not verify(seq, computed, returned, known, chunk.end_tokens):

            def again() -> bool:
                return verify(seq, computed, returned, known, chunk.end_tokens)

            if not self.preempt_until(again, seq, plan):
                return self.continues and not self.stuck
        self._drafter.take(chunk)
        plan.chunks.append(chunk)
        return True

    def without_step(self, plan: Plan, decoding: Iterable[Sequence]) -> list[Sequence]:
        """Sequences of `decoding` that run, lack output tokens and have no step in `plan`."""
        running, stepping = self._scheduler.running, {chunk.seq for chunk in plan.chunks}
        return [
            seq
            for seq in decoding
            if seq in running and seq not in stepping and seq.num_outputs < seq.output_tokens
        ]

    # --- preemption -----------------------------------------------------------------------------

    def make_room(self, seq: Sequence, plan: Plan, num_tokens: int) -> bool:
        """Allocate memory for num_tokens slots of `seq`, preempting others or, at last, itself;
        False if it does not fit.
        """
        scheduler = self._scheduler
        turns_before = 0 if scheduler.stepped else seq.order

        def extend() -> bool:
            return scheduler.extend(seq, plan, num_tokens, turns_before)

        return extend() or self.preempt_until(extend, seq, plan)

    def preempt_until(self, took: Callable[[], bool], seq: Sequence, plan: Plan) -> bool:
        """Preempt sequences one by one until `took` succeeds; False once `seq` is preempted.

        If frees are deferred, it stops at a victim with a step in flight, as its blocks would not
        be free.
        """
        scheduler = self._scheduler
        while True:
            victim = scheduler.choose_victim(scheduler.running)
            if self._connection.defers_frees and victim.in_flight is not None:
                self.stuck = True
                return False
            if victim.decoding and victim.order < seq.order and not scheduler.stepped:
                self._count_scheduled(victim)
            scheduler.preempt(victim, plan)
            if victim is seq:
                return False
            if took():
                return True

    def _count_scheduled(self, victim: Sequence) -> None:
        """Count the slot of a victim scheduled earlier in this step as filled, though the step does
        not compute it.
        """
        self._scheduler.batch.leave(victim)
        self._scheduler.allocator.extend(victim, victim.num_computed + 1)
