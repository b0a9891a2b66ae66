"""The base of all schedulers: the queue, the step being scheduled, and the life of a plan.

schedule() decides one step and allocates its memory. repeatable(plan) counts the equal steps that
could follow, and repeat(plan, k) schedules k of them. finish(plan) processes the outputs of the
last one.
"""

from abc import abstractmethod
from collections.abc import Reversible

from mypy_extensions import mypyc_attr

from kvsim.engine.decode_batch import DecodeBatch, TokenBatch
from kvsim.engine.limits.limit import NO_LIMITS
from kvsim.engine.plan import Cached, HostCopy, Plan, ScheduledChunk
from kvsim.engine.policies.policies import Policies
from kvsim.engine.speculation.verifier import Verifier
from kvsim.memory.allocator import Allocator, Demand, Refusal
from kvsim.memory.ledger import Course, Usage
from kvsim.request import Request
from kvsim.sequence import Sequence, by_order


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler:
    """Schedules the waiting and running sequences of one allocator.

    running: sequences in order of admission. prefilling: running sequences that compute their
    prompt or, resumed, all their tokens again. batch: decoding sequences. A running sequence in
    neither waits for its last output, or verifies drafts as a chunk of each plan. limits: on
    chunks, in addition to tokens, sequences and blocks. special_limits: replace `limits` from the
    first request with images or an adapter on. engine_faults: steps in which the real engine
    corrupts a prompt. awaited_hit_tokens: see RunTotals. stepped: whether the decoding sequences of
    the step being scheduled have their slots.
    """

    def __init__(self, allocator: Allocator, max_model_len: int, policies: Policies) -> None:
        self.allocator = allocator
        self.max_model_len = max_model_len
        self.waiting, self.victim, self.preemption = policies
        self.running: dict[Sequence, None] = {}
        self.prefilling: dict[Sequence, None] = {}
        self.batch: DecodeBatch = TokenBatch(allocator)
        self.num_preemptions = self.recomputed_tokens = self.engine_faults = 0
        self.limits = self.special_limits = NO_LIMITS
        self._orders = self.awaited_hit_tokens = 0
        self.stepped = False

    @abstractmethod
    def schedule(self) -> Plan:
        """Schedule the next step: allocate its memory and advance its sequences."""

    @abstractmethod
    def refusal(self, request: Request) -> Refusal | None:
        """The reason why this scheduler could never run `request`; None if it could."""

    def output_limit(self, request: Request) -> int:
        """Number of output tokens at which max_model_len ends a request."""
        return max(1, self.max_model_len - request.prompt_tokens)

    def add(self, seq: Sequence) -> bool:
        """Queue a new sequence; returns whether the next plan could differ because of it."""
        before, request = self.waiting.head, seq.request
        if request.items or request.adapter is not None:
            self.limits = self.special_limits
        self.waiting.add(seq)
        return self.waiting.head is not before or not self.running or self.limits.bind

    def give_up(self, head: Sequence) -> Refusal | None:
        """Remove `head`, if the simulated engine never starts it, and return why; else None."""
        return None

    @property
    def verifier(self) -> Verifier | None:
        """The part that verifies drafts; None without drafts."""
        return None

    @property
    def expects_more(self) -> bool:
        """Whether the head of the queue may start when a transfer or copy has ended."""
        return False

    @property
    def swapped_bytes(self) -> int:
        """Bytes swapped to host memory and back so far."""
        return self.preemption.swapped_bytes

    def usage(self) -> Usage:
        """The memory ledger now."""
        return self.usage_for(self.waiting.head)

    def usage_for(self, head: Sequence | None) -> Usage:
        """The memory ledger now; the need of `head`, first in the queue, splits its free bytes."""
        return self.allocator.usage(head, busy=bool(self.running))

    # --- the step being scheduled -----------------------------------------------------------------

    def admit_first(
        self, plan: Plan, cached: Cached, new_tokens: int, fit_tokens: int, drafts: int = 0
    ) -> bool:
        """Start the head of the queue with its first chunk; False if it does not fit.

        fit_tokens: slots that must fit. drafts: number of padding tokens at the end of the chunk.
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
        self.start(seq, plan, cached.tokens, new_tokens, drafts)
        return True

    def cached(self, seq: Sequence) -> Cached:
        """The longest prefix of a waiting sequence that is cached or swapped out."""
        cached = self.allocator.cached_tokens(seq)
        kept = self.preemption.kept_tokens(seq) if seq.num_preemptions else 0
        return Cached(kept, True) if kept > cached else Cached(cached, False)

    def start(
        self, seq: Sequence, plan: Plan, cached_tokens: int, new_tokens: int, drafts: int = 0
    ) -> None:
        """Add `seq`, which has its memory, to the running ones; compute its first chunk."""
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
        self.compute(seq, plan, new_tokens, drafts)

    def compute(self, seq: Sequence, plan: Plan, new_tokens: int, drafts: int = 0) -> None:
        """Schedule a chunk of new_tokens tokens of `seq`, the last `drafts` of which are padding
        drafts, never accepted.
        """
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

    def extend(self, seq: Sequence, plan: Plan, num_tokens: int, turns_before: int = 0) -> bool:
        """Allocate num_tokens slots; False if they do not fit. A needed copy stalls `plan`."""
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

    def choose_victim(self, running: Reversible[Sequence]) -> Sequence:
        """Choose the sequence of `running` to preempt."""
        return self.victim.choose(running, self._computed_tokens, self.allocator.shared_tokens)

    def preempt(self, victim: Sequence, plan: Plan) -> None:
        """Free all memory of a running sequence, and queue it at the front.

        Its `num_computed` keeps the number of computed tokens until it resumes.
        """
        del self.running[victim]
        if victim in self.batch:
            self.batch.leave(victim)
            if self.stepped:
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

    def step_decoders(self, plan: Plan, passed_over: list[Sequence]) -> None:
        """Give all members of the batch except `passed_over` a slot in this step."""
        for seq in passed_over:
            self.batch.leave(seq)
        if self.batch.num:
            self.batch.step()
        self.stepped, plan.passed_over = True, passed_over

    def _close(self, plan: Plan) -> Plan:
        """Complete the plan: count decoding sequences, add completed prompts to the batch."""
        self.allocator.step_decided()
        if self.stepped:
            self.stepped = False
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
        """Let `seq`, with all its known tokens computed, decode from the next step on."""
        self.batch.join(seq, seq.num_computed)

    def _complete(self, plan: Plan) -> None:
        """Remove members without a further step; those with their last token finish."""
        for seq in self.batch.complete():
            self.batch.leave(seq)
            if seq.num_outputs == seq.output_tokens:
                plan.finishing.append(seq)

    # --- the life of a plan ---------------------------------------------------------------------

    def repeatable(self, plan: Plan, limit: int) -> int:
        """Number of further steps equal to `plan` if no request arrives, at most `limit`.

        In these steps only the batch decodes, no sequence finishes, memory suffices, and the queue
        stays blocked.
        """
        return self.quiet_steps(plan, limit)

    def quiet_steps(self, plan: Plan, limit: int) -> int:
        """Number of steps for `repeatable`, by the batch, the memory and the queue alone."""
        if plan.chunks or plan.passed_over or plan.preempted or plan.finishing or plan.stalls:
            return 0
        if not self.limits.stay() or (self.limits.bind and self.prefilling):
            return 0
        batch = self.batch
        limit = batch.steps_that_fit(min(limit, batch.steps_to_leave()))
        # The need of the head of the queue, which may have been skipped, splits the free bytes.
        blocked, head = self._blocked_head(), self.waiting.head
        for each in (head,) if head is blocked else (blocked, head):
            if each is not None and limit:
                limit = batch.steps_head_stays_blocked(each, limit, busy=bool(self.running))
        return limit

    def run_ended(self, plan: Plan) -> None:
        """Called when a run of `plan` is over, after all repeated steps or fewer."""

    def _blocked_head(self) -> Sequence | None:
        """The waiting sequence that did not fit in the last step and so blocks the queue."""
        return self.waiting.head

    def returns_quietly(self, plan: Plan) -> bool:
        """Whether processing the outputs of `plan` leaves later steps unchanged.

        The blocks of a finished prompt become cached. This may let a waiting sequence start, or
        free a duplicate block.
        """
        return not plan.finishing and (not plan.chunks or self.waiting.head is None)

    def enable_lockstep(self, depth: int) -> None:
        """Let all sequences verify drafts in lockstep, with `depth` steps in flight; called before
        the first step.
        """

    def repeat(self, plan: Plan, steps: int) -> Course:
        """Schedule `steps` more steps of `plan` (one with drafts); returns the ledger's change."""
        course = self.batch.advance(steps)
        self.allocator.step_decided()
        plan.steps += steps
        self._complete(plan)
        return course

    def took_token(self, seq: Sequence, plan: Plan) -> bool:
        """Whether a running sequence without a chunk in `plan`, just scheduled, decodes in it."""
        return seq.decoding and seq not in plan.passed_over

    def step_returned(self) -> None:
        """Process the oldest step in flight of a repeated plan; no sequence finishes with it."""

    def finish(self, plan: Plan) -> list[Sequence]:
        """Process the plan's last outputs; returns finished sequences in running order."""
        plan.finishing.sort(key=by_order)
        self.limits.returned(plan, plan.finishing)
        for chunk in plan.chunks:
            if chunk.samples and chunk.seq in self.running and chunk.seq not in plan.finishing:
                self.allocator.checkpoint(chunk.seq, chunk.end_tokens)
        for seq in plan.finishing:
            self.leave(seq)
        return plan.finishing

    def leave(self, seq: Sequence) -> None:
        """Remove `seq`, which has its last output token."""
        seq.finished = True
        self.preemption.drop(seq)
        if seq in self.running:
            del self.running[seq]
            self.allocator.release(seq)
            self.limits.released(seq)
        else:
            self.waiting.remove(seq)  # preempted while its last token was in flight
