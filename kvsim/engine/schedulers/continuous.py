"""Continuous batching as vLLM's scheduler does it (v1/core/sched/scheduler.py, 0.33; 0.11.2 by
option): one token budget a step, running sequences first, then waiting ones.

A KV connector, tokens drafted ahead and the stages of a pipeline are parts that the scheduler
holds. Each has a form that does nothing, and the steps below are the same with all of them.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Row

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import Plan
from kvsim.engine.policies.victims.latest import Latest
from kvsim.engine.schedulers.admission import AdmissionLoop
from kvsim.engine.schedulers.budget_refusal import budget_refusal
from kvsim.engine.schedulers.chunk_sizes import ChunkSizes
from kvsim.engine.schedulers.connection import Connection
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.draft_runs import LONGEST_RUN, DraftRuns, draft_runs
from kvsim.engine.schedulers.in_flight import StepsInFlight
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.speculation.verifier import Verifier
from kvsim.memory.allocator import Refusal
from kvsim.memory.ledger import Course
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.sequence import Sequence, by_order


@mypyc_attr(allow_interpreted_subclasses=True)
class ContinuousScheduler(Scheduler):
    """Running sequences first, in order of admission; then the waiting queue.

    drafter: decides which drafts are accepted. connection: to a KV connector. in_flight: steps that
    have not returned. With pipeline parallelism a running sequence with a token in flight is in
    neither `batch` nor `prefilling` until it may get the next one. Where tokens are drafted each
    step of a sequence is a chunk of its plan, unless all sequences verify as a batch (`runs`).
    """

    def __init__(self, parts: ContinuousParts) -> None:
        super().__init__(parts.allocator, parts.max_model_len, parts.policies)
        version, knobs = self.version, self.knobs = parts.version, parts.knobs
        self.drafter, self._drafts = parts.drafter, parts.drafter.verifies
        self.connection = Connection(
            parts.connector, self.allocator, self.waiting, self.batch, self._computed_tokens
        )
        connects = self.connection.connects
        if connects:
            self.waiting = self.connection.queues
        self.in_flight = StepsInFlight(parts.stages, ahead=parts.ahead, connects=connects)
        self._staged = parts.stages > 1
        self.runs: DraftRuns | None = None
        self.sizes = ChunkSizes(self, parts)
        self.admission = AdmissionLoop(self, parts, self.sizes, self.connection, self.in_flight)
        # Whether the loop goes on behind a sequence that preempted itself.
        self._continues = knobs.by_priority and version.continues_after_self_preemption
        overlaps, loads = connects and self.in_flight.counts, parts.connector.loads
        self._defers_frees = overlaps and loads
        self._drops_outputs = overlaps and not loads
        self._stuck = False  # the step of a victim is in flight, so no sequence was preempted
        self._unfreed: list[Sequence] = []  # finished, with a step in flight

    @property
    def verifier(self) -> Verifier | None:
        """The part that verifies drafts; None without drafts."""
        return self.drafter if self._drafts else None

    def refusal(self, request: Request) -> Refusal | None:
        return self.special_limits.refusal(request) or budget_refusal(
            request, self.knobs, self.allocator.chunk_tokens, self.drafter.input_slots
        )

    def passed_by(self) -> dict[str, int]:
        """Waiting sequences that the last plan skipped for lack of a resource that later ones may
        not need.

        Keys: `adapters`, `encoder`, `loads`.
        """
        admission, connection = self.admission, self.connection
        found = {"encoder": admission.num_unencoded, "adapters": admission.num_unstarted}
        if connection.connects:
            holding = len(connection.queues.holding) - connection.num_unready
            found["loads"] = holding + len(connection.put_off)
        return found

    @property
    def skips(self) -> bool:
        """Whether the last step skipped a sequence for want of a slot or of embeddings."""
        return bool(self.admission.num_unstarted or self.admission.num_unencoded)

    # --- a step ---------------------------------------------------------------------------------

    def schedule(self) -> Plan:
        plan = Plan()
        if self.in_flight.counts:
            self.in_flight.begin()
        if self.connection.connects:
            self.connection.begin()
        self._stuck = False
        threshold = self.knobs.long_prefill_token_threshold
        lone = len(self.running) + len(self.waiting) <= 1
        if lone and self.version.lone_request_ignores_threshold:
            threshold = 0  # no other request to starve
        self.limits.begin()
        budget = self.knobs.max_num_batched_tokens
        budget = self._continue_running(plan, budget, threshold)
        if not plan.preempted:
            self.admission.admit(plan, budget, threshold)
        self._close(plan)
        if self.connection.connects or self._staged:
            self._launch(plan)
        return plan

    def _launch(self, plan: Plan) -> None:
        """The plan is decided: it is in flight, and a connector hears of it."""
        outputs = self._outputs(plan)
        if self.connection.connects:
            self.connection.decide(plan, tuple(self.running), outputs)
            if self._drafts:
                self.connection.device.note_tables(plan)
        if self.in_flight.counts:
            self.in_flight.launch(plan, outputs)
        if self.connection.connects and not self._staged:
            self.connection.device.decided = plan

    def _outputs(self, plan: Plan) -> dict[Sequence, int]:
        """Sequences of this step, in running order, each with the tokens that it puts out."""
        outputs = {chunk.seq: chunk.num_outputs for chunk in plan.chunks}
        if self.runs is not None and plan.num_drafts:
            outputs |= self.runs.batch.outputs()
        passed_over, ends = set(plan.passed_over), set(plan.finishing)
        found: dict[Sequence, int] = {}
        for seq in self.running:
            if seq in outputs:
                found[seq] = outputs[seq]
            elif self._staged:
                if seq.in_flight is plan:
                    found[seq] = 1
            elif seq in ends or (seq.decoding and seq not in passed_over):
                found[seq] = 1
        return found

    def took_token(self, seq: Sequence, plan: Plan) -> bool:
        return seq.in_flight is plan if self._staged else super().took_token(seq, plan)

    # --- running sequences ----------------------------------------------------------------------

    def _continue_running(self, plan: Plan, budget: int, threshold: int) -> int:
        """Schedule the running sequences: decodes and further chunks of prompts. budget: tokens;
        returns the rest of it. threshold: most tokens of one prompt, 0 for no such limit.
        """
        if self.runs is not None:
            left = self.runs.run(plan, budget, threshold)
            if left is not None:
                return left
        elif not self._drafts and self._decodes_as_batch(budget):
            return self._run(plan, budget, threshold)
        return self._run_in_turns(plan, budget, threshold)

    def _decodes_as_batch(self, budget: int) -> bool:
        """Whether taking slots for all decoding sequences before prompts go on equals vLLM's order,
        one sequence after the other.
        """
        stops_midway = self.knobs.by_priority and not self._continues
        if stops_midway or self.batch.num > budget or not self._prefills_come_last():
            return False
        # A sequence must be preempted by a rule that may choose the one that asks for room. As
        # under priorities, the sequences behind that one then get no turn in the step. Where frees
        # are put off it may be that none is.
        anyone = not (isinstance(self.victim, Latest) or self.knobs.by_priority)
        if not (anyone or self._defers_frees) or not self.batch.num:
            return True
        return self.allocator.steps_that_fit(1) > 0

    def _prefills_come_last(self) -> bool:
        """Whether every prefilling sequence was admitted after every decoding one."""
        if not self.prefilling or not self.batch.num:
            return True
        last = reversed(self.running)
        return all(next(last) in self.prefilling for _ in self.prefilling)

    def _run(self, plan: Plan, budget: int, threshold: int) -> int:
        """The whole batch decodes, then prompts go on: only sequences short of memory are
        visited.
        """
        if self.batch.num and not self.allocator.steps_that_fit(1):
            for seq in self.allocator.must_extend():
                room = seq not in self.running or self._make_room(
                    seq, plan, self.batch.slots(seq) + 1
                )
                if not room and not self._continues:
                    break
        self.step_decoders(plan, [])
        for seq in list(self.prefilling):
            left = budget - self.batch.num - sum(chunk.new_tokens for chunk in plan.chunks)
            if left <= 0 or not self.continue_prompt(seq, plan, left, threshold):
                break
        return budget - self.batch.num - sum(chunk.new_tokens for chunk in plan.chunks)

    def _run_in_turns(self, plan: Plan, budget: int, threshold: int) -> int:
        """Schedule the running sequences one after the other: a prompt chunk, a decode slot, or a
        verification of drafts.
        """
        running, prefilling, chunks = self.running, self.prefilling, plan.chunks
        slots, spent, lost = self.drafter.input_slots, 0, 0
        short = set[Sequence]() if self._drafts else set(self.allocator.must_extend())
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
                room = seq not in short or self._make_room(seq, plan, self.batch.slots(seq) + 1)
                if room:
                    decoded.add(seq)
                    turned.add(seq)
                    spent += 1
                going = room or (self._continues and seq not in running)
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
            self.step_decoders(plan, [s for s in running if s.decoding and s not in decoded])
        elif len(chunks) < len(running):
            decoding = (seq for seq in running if seq not in prefilling)
            plan.passed_over = self.without_step(plan, decoding)
        return budget - spent

    def _turns_lost(self, seq: Sequence, victims: Row[Sequence], turned: set[Sequence]) -> int:
        """Number of sequences after `seq` that the loop skips because of `victims`; turned:
        sequences scheduled already.
        """
        if not (self.knobs.by_priority and self.version.preemption_skips_next):
            return 0
        return sum(victim.order < seq.order and victim not in turned for victim in victims)

    def continue_prompt(self, seq: Sequence, plan: Plan, budget: int, threshold: int) -> bool:
        """The next chunk of a running prompt; False ends the loop over running sequences."""
        if seq not in self.running:
            return True
        new_tokens = self.sizes.next(seq, budget, threshold)
        if not new_tokens:
            return True
        if not self._make_room(seq, plan, seq.num_computed + new_tokens):
            return self._continues and seq not in self.running
        self.compute(seq, plan, new_tokens)
        return True

    def compute(self, seq: Sequence, plan: Plan, new_tokens: int, drafts: int = 0) -> None:
        super().compute(seq, plan, new_tokens, drafts)
        self.drafter.began(plan.chunks[-1])

    def verify(self, seq: Sequence, plan: Plan, most_tokens: int) -> bool:
        """A decoding sequence verifies its drafts, if it may have a step; False ends the loop over
        running sequences.
        """
        if self._staged and self.in_flight.step < seq.next_step:
            return True
        step = self.drafter.next_step(seq, most_tokens)
        if step is None:
            return True
        chunk, returned, known = step
        computed, verify = chunk.prior_tokens + chunk.new_tokens, self.allocator.verify
        if not verify(seq, computed, returned, known, chunk.end_tokens):

            def again() -> bool:
                return verify(seq, computed, returned, known, chunk.end_tokens)

            if not self.preempt_until(again, seq, plan):
                return self._continues and not self._stuck
        self.drafter.take(chunk)
        plan.chunks.append(chunk)
        return True

    def without_step(self, plan: Plan, decoding: Iterable[Sequence]) -> list[Sequence]:
        """Sequences of `decoding` that run, lack output tokens and have no step in `plan`."""
        running, stepping = self.running, {chunk.seq for chunk in plan.chunks}
        return [
            seq
            for seq in decoding
            if seq in running and seq not in stepping and seq.num_outputs < seq.output_tokens
        ]

    # --- preemption -----------------------------------------------------------------------------

    def _make_room(self, seq: Sequence, plan: Plan, num_tokens: int) -> bool:
        """Get memory for `num_tokens` slots of `seq`, preempting others or, at last, itself."""
        turns_before = 0 if self._stepped else seq.order

        def extend() -> bool:
            return self.extend(seq, plan, num_tokens, turns_before)

        return extend() or self.preempt_until(extend, seq, plan)

    def preempt_until(self, took: Callable[[], bool], seq: Sequence, plan: Plan) -> bool:
        """Preempt one after the other until `took` succeeds; False once `seq` is preempted.

        Where frees are deferred, not beyond a victim with a step in flight: its blocks are not
        free, so `seq` finds no room.
        """
        while True:
            victim = self._choose_victim(self.running)
            if self._defers_frees and victim.in_flight is not None:
                self._stuck = True
                return False
            if victim.decoding and victim.order < seq.order and not self._stepped:
                self._count_scheduled(victim)
            self.preempt(victim, plan)
            if victim is seq:
                return False
            if took():
                return True

    def _count_scheduled(self, victim: Sequence) -> None:
        """Count the slot of a victim scheduled earlier in this step as filled, though the step will
        not compute it.
        """
        self.batch.leave(victim)
        self.allocator.extend(victim, victim.num_computed + 1)

    def preempt(self, victim: Sequence, plan: Plan) -> None:
        if self._drafts:
            for chunk in plan.chunks:
                if chunk.seq is victim:
                    self.drafter.undone(chunk)
        super().preempt(victim, plan)
        self.drafter.preempted(victim)
        self.in_flight.abandon(victim)
        if self.connection.connects:
            self.connection.device.forget(victim)
        last = self.in_flight.newest
        if self._drops_outputs and last is not None and victim in last.finishing:
            last.finishing.remove(victim)  # the KV that goes with its token is lost
            victim.num_outputs -= 1

    # --- the life of a plan ---------------------------------------------------------------------

    def _close(self, plan: Plan) -> Plan:
        if not self._staged:
            return super()._close(plan)
        flying, passed_over = self.in_flight, set(plan.passed_over)
        flying.newest = plan
        resting = [
            seq
            for seq in self.running
            if seq.in_flight is not None
            and not (self._drafts or seq.decoding or seq in passed_over or seq in self.prefilling)
            and seq.num_outputs < seq.output_tokens
        ]
        for chunk in plan.chunks:
            flying.compute(chunk.seq, plan)
        super()._close(plan)
        plan.passed_over.extend(resting)
        for seq in plan.finishing:
            flying.compute(seq, plan)
        for seq in self.running:
            if seq.decoding and seq not in passed_over:
                self.batch.leave(seq)
                flying.compute(seq, plan)
        if flying.ahead and not self._drafts:
            self._go_on(flying.rested(plan))
        return plan

    def _join(self, seq: Sequence) -> None:
        if self._drafts:
            if self.runs is not None:
                self.runs.join(seq)
        elif not self._staged or self.in_flight.lets_join(seq):
            super()._join(seq)

    def _go_on(self, sequences: Iterable[Sequence]) -> None:
        """Let these decoding sequences get their next token from the next step on."""
        for seq in sequences:
            goes_on = seq in self.running and seq not in self.prefilling
            if goes_on and seq.num_outputs < seq.output_tokens:
                self._join(seq)

    def _blocked_head(self) -> Sequence | None:
        return self.admission.stopped_at if self.limits.bind else self.waiting.head

    def repeatable(self, plan: Plan, limit: int) -> int:
        if self._staged:
            return self._repeatable_alone(plan, limit)
        if self._drafts:
            if not plan.num_drafts or len(self.running) != self.batch.num:
                return 0
            if self.waiting.head is not None and self.drafter.reads_far_ahead:
                return 0
            limit = min(limit, LONGEST_RUN)
        if not self.connection.connects:
            return super().repeatable(plan, limit)
        if len(self.waiting) or self._stuck:
            return 0
        limit = super().repeatable(plan, limit)
        return limit and self.connection.quiet_steps(plan, tuple(self.running), limit)

    # Over the stages of a pipeline members of the decode batch leave it with each step, until its
    # tokens return. While one step holds all running sequences they may stay for a run of steps,
    # as on one stage: the steps between are empty.

    def _repeatable_alone(self, plan: Plan, limit: int) -> int:
        if not self._holds_all(plan):
            return 0
        connection, running = self.connection, tuple(self.running)
        if connection.connects:
            if len(self.waiting) or self.in_flight.ahead:
                return 0
            connection.device.scheduled(Plan(), {})  # an empty step is next
            limit = connection.quiet_steps(plan, running, limit)
        for seq in running:
            super()._join(seq)
        limit = limit and super().repeatable(plan, limit)
        if limit and not self.in_flight.ahead:
            self._decide_empty_steps()  # which may free blocks that copies held
            limit = super().repeatable(plan, limit)
        if not limit:
            self._part()
        return limit

    def _holds_all(self, plan: Plan) -> bool:
        """Whether all running sequences decode in `plan`, and none that waits could start in an
        empty step, which has more of the budget.
        """
        running, head = len(self.running), self.waiting.head
        if self._drafts or plan.finishing:
            return False
        if plan.num_decode != running or plan.passed_over or plan.preempted or plan.stalls:
            return False
        if head is None or running >= self.knobs.max_num_seqs:
            return True
        asked = self.knobs.enable_chunked_prefill and running < self.knobs.max_num_batched_tokens
        return asked and not self.limits.bind and head.in_flight is None

    def _decide_empty_steps(self) -> None:
        """The other stages got steps without sequences."""
        for _ in range(self.in_flight.stages - 1):
            self.in_flight.begin()
            self.allocator.step_decided()

    def run_ended(self, plan: Plan) -> None:
        if self._staged:
            if plan.steps > 1 and not self.in_flight.ahead:
                self._decide_empty_steps()
            self._part()

    def _part(self) -> None:
        """The sequences of the newest step rest until it returns."""
        for seq in self.running:
            if seq.decoding:
                self.batch.leave(seq)

    def returns_quietly(self, plan: Plan) -> bool:
        if not self._drafts:
            return super().returns_quietly(plan)
        return not plan.finishing and (
            self.waiting.head is None or not any(chunk.samples for chunk in plan.chunks)
        )

    def enable_lockstep(self, depth: int) -> None:
        connects = self.connection.connects
        if not self._drafts or self._staged or (connects and depth > 1):
            return
        self.runs = draft_runs(self, self.knobs, lags=depth > 1)
        if self.runs is not None:
            self.batch = self.runs.batch
            if connects:
                self.connection.device.verifies_as_batch(self.runs.batch)

    def repeat(self, plan: Plan, steps: int) -> Course:
        course = super().repeat(plan, steps)
        if self.runs is not None:
            plan.decode_slots = self.runs.batch.new_slots
            if self.connection.connects:
                self.connection.device.note_turns()
        return course

    def step_returned(self) -> None:
        if self.runs is not None:
            self.runs.return_step([], [])

    # --- what returns ---------------------------------------------------------------------------

    def finish(self, plan: Plan) -> list[Sequence]:
        landed = self._land(plan) if self.in_flight.counts else []
        if not self._drafts:
            super().finish(plan)
        else:
            self._finish_verified(plan)
        if self._staged and not self.in_flight.ahead:
            self._go_on(landed)
        return plan.finishing

    def _finish_verified(self, plan: Plan) -> None:
        """See `Scheduler.finish`; in order, as content of one sequence may duplicate that of
        another.
        """
        plan.finishing.sort(key=by_order)
        if self.runs is not None and plan.num_drafts:
            self.runs.return_step(plan.chunks, plan.finishing)
            return
        finishing = set(plan.finishing)
        for chunk in plan.chunks:
            self.drafter.returned(chunk)
            if chunk.seq in finishing:
                self._leave(chunk.seq)
            elif chunk.samples and chunk.seq in self.running:
                self.allocator.checkpoint(chunk.seq, chunk.end_tokens)

    def leave(self, seq: Sequence) -> None:
        """Remove `seq`, which has its last output."""
        self._leave(seq)

    def _land(self, plan: Plan) -> list[Sequence]:
        """The outputs of `plan` have returned, with or without a later step of their sequences in
        flight; returns those without.
        """
        landed = self.in_flight.land(plan)
        for seq in self._unfreed:
            if seq.in_flight is None:
                self.connection.device.forget(seq)
                self.allocator.release(seq)
        self._unfreed = [seq for seq in self._unfreed if seq.in_flight is not None]
        if self.connection.connects and not self._drafts and self.in_flight.ahead:
            self._name_returned(plan, landed)
        return landed

    def _name_returned(self, plan: Plan, landed: list[Sequence]) -> None:
        """Cache the full blocks of sequences with no further step in flight when their token
        returns.

        The others, and all without asynchronous scheduling, are cached with their next step.
        """
        newest = self.in_flight.newest
        for seq in landed:
            if not plan.outputs[seq]:
                continue
            passed_over = newest is not None and seq in newest.passed_over
            if (passed_over or self._staged) and seq in self.running and seq not in plan.finishing:
                self.connection.blocks.name_returned(seq, self._computed_tokens(seq))

    def _leave(self, seq: Sequence) -> None:
        """Remove `seq`, which has its last output."""
        if seq not in self.running or not self.connection.connects:
            super()._leave(seq)
            return
        if self._defers_frees and seq.in_flight is not None:
            self.allocator.checkpoint(seq, seq.final_tokens)
            self.connection.blocks.leave_behind(seq)
            self.connection.connector.finished(seq)
            self._unfreed.append(seq)
        elif not self.connection.keeps(seq):
            super()._leave(seq)
            return
        seq.finished = True
        del self.running[seq]

    @property
    def unfreed_blocks(self) -> int:
        """Blocks of finished sequences that a step in flight may write."""
        return sum(sum(self.connection.blocks.held_blocks(seq)) for seq in self._unfreed)

    def check_stuck(self) -> None:
        """InputError if a request is left when nothing can happen any more."""
        there = [*self.running, *self.connection.queues.in_turn]
        first = there[0] if there else self.waiting.head
        if first is not None:
            raise InputError(
                "a request waits for ever: no step has room for the next image of its prompt",
                where="scheduler",
                value=first.id,
                remedy="raise max_num_batched_tokens, encoder_cache_size or "
                "long_prefill_token_threshold, or disable_chunked_mm_input = false",
            )
