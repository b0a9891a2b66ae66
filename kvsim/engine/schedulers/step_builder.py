"""What every scheduler builds a step from: admission, chunks, memory, preemption and the batch."""

from collections.abc import Reversible

from mypy_extensions import mypyc_attr

from kvsim.engine.decode_batch import DecodeBatch
from kvsim.engine.limits.limit import NO_LIMITS
from kvsim.engine.plan import Cached, HostCopy, Plan, ScheduledChunk
from kvsim.engine.policies.policies import Policies
from kvsim.memory.allocator import Allocator, Demand
from kvsim.memory.ledger import Usage
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class StepBuilder:
    """Waiting and running sequences over one allocator, and the parts of the step being scheduled.

    running: sequences in order of admission. prefilling: running sequences that compute their
    prompt or, resumed, all their tokens again. batch: decoding sequences. A running sequence in
    neither waits for its last output, or verifies drafts as a chunk of each plan.
    limits: on chunks, beside tokens, sequences and blocks; special_limits: from the first request
    with images or an adapter on. engine_faults: steps that damage a waiting prompt in the engine.
    """

    def __init__(self, allocator: Allocator, max_model_len: int, policies: Policies) -> None:
        self.allocator = allocator
        self.max_model_len = max_model_len
        self.waiting, self.victim, self.preemption = policies
        self.running: dict[Sequence, None] = {}
        self.prefilling: dict[Sequence, None] = {}
        self.batch = DecodeBatch(allocator)
        self.num_preemptions = 0
        self.recomputed_tokens = 0
        self.engine_faults = 0
        self.limits = self.special_limits = NO_LIMITS
        self._orders = 0
        self._stepped = False  # whether the decoders of this step have taken their slots

    def _admit_first(
        self, plan: Plan, cached: Cached, new_tokens: int, fit_tokens: int, drafts: int = 0
    ) -> bool:
        """Start the head of the queue with its first chunk, the last `drafts` tokens of which are
        padding; False if it does not fit.
        """
        seq = self.waiting.head
        assert seq is not None
        num_tokens, busy = cached.tokens + new_tokens, bool(self.running)
        demand = Demand(num_tokens, fit_tokens, cached.tokens, busy, cached.swapped)
        admission = self.allocator.admit(seq, demand)
        if admission is None:
            self.limits.declined(seq)
            return False
        self.waiting.pop()
        num_bytes = admission.loaded_bytes
        if seq.num_preemptions:
            num_bytes += self.preemption.take(seq)
        if num_bytes:
            plan.copies.append(HostCopy(num_bytes, self.usage()))
        self._start(seq, plan, cached.tokens, new_tokens, drafts)
        return True

    def _cached(self, seq: Sequence) -> Cached:
        """The leading tokens of a waiting sequence that need no computing."""
        cached = self.allocator.cached_tokens(seq)
        kept = self.preemption.kept_tokens(seq) if seq.num_preemptions else 0
        return Cached(kept, True) if kept > cached else Cached(cached, False)

    def _start(
        self, seq: Sequence, plan: Plan, cached_tokens: int, new_tokens: int, drafts: int = 0
    ) -> None:
        """Run the first chunk of a sequence that has its memory."""
        seq.order = self._orders = self._orders + 1
        self.running[seq] = None
        plan.admitted.append((seq, cached_tokens, seq.num_preemptions > 0))
        if seq.num_preemptions:
            self.recomputed_tokens += max(0, seq.num_computed - cached_tokens)
        else:
            seq.hit_tokens = cached_tokens
        seq.num_computed = cached_tokens
        self.prefilling[seq] = None
        self.limits.started(seq)
        self._compute(seq, plan, new_tokens, drafts)

    def _compute(self, seq: Sequence, plan: Plan, new_tokens: int, drafts: int = 0) -> None:
        """Compute `new_tokens` tokens of `seq`, the last `drafts` of them rejected drafts."""
        prior = seq.num_computed
        end = seq.num_computed = prior + new_tokens - drafts
        samples = end == seq.num_tokens
        is_decode = samples and new_tokens == 1 and seq.num_outputs > 0
        seq.num_outputs += samples
        chunk = ScheduledChunk(seq, new_tokens, prior, samples, is_decode, prior, end, drafts)
        plan.chunks.append(chunk)
        stall_ps = self.limits.scheduled(chunk)
        if stall_ps:
            plan.stalls.append((stall_ps, self.usage()))

    def _extend(self, seq: Sequence, plan: Plan, num_tokens: int, turns_before: int = 0) -> bool:
        """Get memory for `num_tokens` slots of a running sequence; book its copy in `plan`."""
        growth = self.allocator.extend(seq, num_tokens, turns_before=turns_before)
        if growth is None:
            return False
        if growth.copy_ps:
            plan.stalls.append((growth.copy_ps, self.usage()))
            growth.end()
        return True

    def _computed_tokens(self, seq: Sequence) -> int:
        """Slots of a running sequence, including those of the step being scheduled."""
        return self.batch.slots(seq) if seq.decoding else seq.num_computed

    def _choose_victim(self, running: Reversible[Sequence]) -> Sequence:
        """The sequence of `running` to preempt."""
        return self.victim.choose(running, self._computed_tokens, self.allocator.shared_tokens)

    def _preempt(self, victim: Sequence, plan: Plan) -> None:
        """Take all memory from a running sequence, which waits at the front of the queue. Its
        `num_computed` keeps the tokens it had computed until it resumes.
        """
        del self.running[victim]
        if victim in self.batch:
            self.batch.leave(victim)
            if self._stepped:
                victim.num_computed -= 1
                victim.num_outputs -= 1
        elif victim in self.prefilling:
            del self.prefilling[victim]
        plan.take_back(victim)
        num_bytes = self.allocator.sequence_bytes(victim.num_computed)
        if self.preemption.put(victim, victim.num_computed, num_bytes):
            plan.copies.append(HostCopy(num_bytes, self.usage()))
        self.allocator.release(victim)
        self.limits.released(victim)
        victim.num_preemptions += 1
        self.num_preemptions += 1
        plan.preempted.append(victim)
        self.waiting.put_back(victim)

    def _step_decoders(self, plan: Plan, passed_over: list[Sequence]) -> None:
        """All members of the batch except `passed_over` take one slot in this plan."""
        for seq in passed_over:
            self.batch.leave(seq)
        if self.batch.num:
            self.batch.step()
        self._stepped, plan.passed_over = True, passed_over

    def _close(self, plan: Plan) -> Plan:
        """Close the plan: count its decoders, and let completed prompts join the decode batch."""
        self.allocator.step_decided()
        if self._stepped:
            self._stepped = False
            plan.num_decode = plan.decode_slots = self.batch.num
            plan.context_tokens = self.batch.context_tokens
            plan.longest_context_tokens = self.batch.longest_context_tokens()
            for seq in plan.passed_over:
                if seq in self.running:
                    self._join(seq)
        for chunk in plan.chunks:
            if chunk.samples:
                seq = chunk.seq
                if seq in self.prefilling:
                    del self.prefilling[seq]
                else:
                    plan.num_verifying += 1
                if seq.num_outputs == seq.output_tokens:
                    plan.finishing.append(seq)
                else:
                    self._join(seq)
        self._complete(plan)
        return plan

    def _join(self, seq: Sequence) -> None:
        """`seq` has all its known tokens computed and decodes from the next step on."""
        self.batch.join(seq, seq.num_computed)

    def _complete(self, plan: Plan) -> None:
        """Members without a further step leave the batch; with their last token they finish."""
        for seq in self.batch.complete():
            self.batch.leave(seq)
            if seq.num_outputs == seq.output_tokens:
                plan.finishing.append(seq)

    def usage(self) -> Usage:
        """The ledger now."""
        return self.usage_for(self.waiting.head)

    def usage_for(self, head: Sequence | None) -> Usage:
        """The ledger now, its free bytes split by the need of `head`, first in the queue."""
        return self.allocator.usage(head, busy=bool(self.running))
