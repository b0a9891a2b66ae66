"""What every scheduler does: keep who waits and who runs, and carry a plan through its life.

schedule() decides one step and takes its memory: policies differ here alone. repeatable(plan): how
many equal steps could follow; repeat(plan, k): they happened; finish(plan): its outputs are back.
"""

from abc import abstractmethod
from collections.abc import Reversible
from operator import attrgetter

from mypy_extensions import mypyc_attr

from kvsim.engine.decode_batch import DecodeBatch
from kvsim.engine.limits.limit import NO_LIMITS
from kvsim.engine.plan import Cached, HostCopy, Plan, ScheduledChunk
from kvsim.engine.policies.policies import Policies
from kvsim.memory.allocator import Allocator, Demand, Refusal
from kvsim.memory.ledger import Course, Usage
from kvsim.request import Request
from kvsim.sequence import Sequence

by_order = attrgetter("order")


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler:
    """Waiting and running sequences over one allocator.

    running: in order of admission. prefilling: those of them that still compute their prompt (or,
    resumed, all they had). batch: those that decode. Running sequences in neither wait for their
    last output to return, or, where tokens are drafted ahead, take each step as a chunk of a plan.
    limits: what limits its chunks beside tokens, sequences and blocks; special_limits, from the
    first request with images or an adapter on.
    engine_faults: steps in which the simulated engine would have damaged a prompt that waits here.
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
        self._stepped = False  # the decoders of this step have taken their slots

    @abstractmethod
    def schedule(self) -> Plan:
        """Decide the next step, take its memory and advance its sequences."""

    @abstractmethod
    def refusal(self, request: Request) -> Refusal | None:
        """Why this scheduler could never run `request`; None if it could."""

    def output_limit(self, request: Request) -> int:
        """After how many output tokens a request is ended, however many it would put out."""
        return max(1, self.max_model_len - request.prompt_tokens)

    def add(self, seq: Sequence) -> bool:
        """A new sequence waits. Returns whether the next plan could differ for it."""
        before = self.waiting.head
        if seq.request.items or seq.request.adapter is not None:
            self.limits = self.special_limits
        self.waiting.add(seq)
        return self.waiting.head is not before or not self.running or self.limits.bind

    def give_up(self, head: Sequence) -> Refusal | None:
        """Why the simulated engine never starts `head`, which leaves; None: it starts anything."""
        return None

    @property
    def expects_more(self) -> bool:
        """Whether content is on its way whose arrival may let the head of the queue start."""
        return False

    @property
    def swapped_bytes(self) -> int:
        """Moved to host memory and back so far."""
        return self.preemption.swapped_bytes

    # --- building blocks of a plan --------------------------------------------------------------

    def _admit_first(
        self, plan: Plan, cached: Cached, new_tokens: int, fit_tokens: int, drafts: int = 0
    ) -> bool:
        """Start the head of the queue with its first chunk, the last `drafts` tokens of which are
        none of its own; False: no room for it.
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
        """What of a waiting sequence needs no computing."""
        cached = self.allocator.cached_tokens(seq)
        kept = self.preemption.kept_tokens(seq) if seq.num_preemptions else 0
        return Cached(kept, True) if kept > cached else Cached(cached, False)

    def _start(
        self, seq: Sequence, plan: Plan, cached_tokens: int, new_tokens: int, drafts: int = 0
    ) -> None:
        """A sequence whose memory is taken runs its first chunk."""
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
        """Compute `new_tokens` of a sequence with memory for them, the last `drafts` in vain."""
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
        """Memory for `num_tokens` slots of a running sequence, its copy booked in the plan."""
        growth = self.allocator.extend(seq, num_tokens, turns_before=turns_before)
        if growth is None:
            return False
        if growth.copy_ps:
            plan.stalls.append((growth.copy_ps, self.usage()))
            growth.end()
        return True

    def _computed_tokens(self, seq: Sequence) -> int:
        """Slots of a running sequence, those of the step being scheduled included."""
        return self.batch.slots(seq) if seq.decoding else seq.num_computed

    def _choose_victim(self, running: Reversible[Sequence]) -> Sequence:
        """Who of these gives way."""
        return self.victim.choose(running, self._computed_tokens, self.allocator.shared_tokens)

    def _preempt(self, victim: Sequence, plan: Plan) -> None:
        """Take everything from a running sequence; it waits at the front and recomputes later.

        `num_computed` keeps what it had computed until it resumes.
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
        """All members of the batch but those `passed_over` take one slot in this plan."""
        for seq in passed_over:
            self.batch.leave(seq)
        if self.batch.num:
            self.batch.step()
        self._stepped, plan.passed_over = True, passed_over

    def _close(self, plan: Plan) -> Plan:
        """Close the plan: count its decoders, and let whoever can decode join for the next step."""
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
        self.allocator.step_decided()
        return plan

    def _join(self, seq: Sequence) -> None:
        """`seq`, all known tokens of which are computed, decodes from the next step on."""
        self.batch.join(seq, seq.num_computed)

    def _complete(self, plan: Plan) -> None:
        """Members without another step leave the batch; who has its last token is finished."""
        for seq in self.batch.complete():
            self.batch.leave(seq)
            if seq.num_outputs == seq.output_tokens:
                plan.finishing.append(seq)

    # --- the life of a plan ---------------------------------------------------------------------

    def repeatable(self, plan: Plan, limit: int) -> int:
        """How many more steps equal to `plan` may follow it if nothing arrives, at most `limit`:
        only the batch decodes, nobody is done, memory lasts, and the queue stays blocked.
        """
        if plan.chunks or plan.passed_over or plan.preempted or plan.finishing or plan.stalls:
            return 0
        if not self.limits.stay() or (self.limits.bind and self.prefilling):
            return 0
        batch = self.batch
        limit = batch.steps_that_fit(min(limit, batch.steps_to_leave()))
        head = self._blocked_head()
        if head is not None and limit:
            limit = batch.steps_head_stays_blocked(head, limit, busy=bool(self.running))
        return limit

    def _blocked_head(self) -> Sequence | None:
        """Whom the last step found no room for, so that nobody behind was looked at."""
        return self.waiting.head

    def returns_quietly(self, plan: Plan) -> bool:
        """Whether the steps after the next one are the same before the outputs of `plan` return.
        Prompts that become known content may start who waits, or give back what was held twice.
        """
        return not plan.finishing and (not plan.chunks or self.waiting.head is None)

    def enable_lockstep(self, depth: int) -> None:
        """Before anything runs: all may verify drafts in step, with `depth` steps in flight."""

    def repeat(self, plan: Plan, steps: int) -> Course:
        """`steps` more steps like `plan` are scheduled (one of drafts); returns the course."""
        course = self.batch.advance(steps)
        self.allocator.step_decided()
        plan.steps += steps
        self._complete(plan)
        return course

    def step_returned(self) -> None:
        """The oldest step in flight of a plan that repeats returned; nobody is done with it."""

    def finish(self, plan: Plan) -> list[Sequence]:
        """The outputs of the plan's last step returned: who is done leaves, in running order."""
        plan.finishing.sort(key=by_order)
        self.limits.returned(plan, plan.finishing)
        for chunk in plan.chunks:
            if chunk.samples and chunk.seq in self.running and chunk.seq not in plan.finishing:
                self.allocator.checkpoint(chunk.seq, chunk.end_tokens)
        for seq in plan.finishing:
            self._leave(seq)
        return plan.finishing

    def _leave(self, seq: Sequence) -> None:
        """`seq` has its last output."""
        seq.finished = True
        self.preemption.drop(seq)
        if seq in self.running:
            del self.running[seq]
            self.allocator.release(seq)
            self.limits.released(seq)
        else:
            self.waiting.remove(seq)  # preempted while its last token was on its way

    def usage(self) -> Usage:
        """The ledger now."""
        return self.usage_for(self.waiting.head)

    def usage_for(self, head: Sequence | None) -> Usage:
        """The ledger now, its free bytes split by the need of `head`, the first that waits."""
        return self.allocator.usage(head, busy=bool(self.running))
