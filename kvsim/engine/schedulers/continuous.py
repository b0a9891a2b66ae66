"""Continuous batching as vLLM's scheduler does it (v1/core/sched/scheduler.py, 0.33; older versions
by option): one token budget a step, running sequences first, then waiting ones.

A KV connector, speculative decoding and pipeline stages are parts that the scheduler holds. Each
has a form that does nothing, and the steps below are the same with all of them.
"""

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.admission import AdmissionLoop
from kvsim.engine.schedulers.batch_runs import BatchRuns, DecodeRuns
from kvsim.engine.schedulers.budget_refusal import budget_refusal
from kvsim.engine.schedulers.chunk_sizes import ChunkSizes
from kvsim.engine.schedulers.connection import Connection
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.draft_runs import LONGEST_RUN, draft_runs
from kvsim.engine.schedulers.in_flight import StepsInFlight
from kvsim.engine.schedulers.running_loop import RunningLoop
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.stage_rests import StageRests
from kvsim.engine.speculation.verifier import Verifier
from kvsim.memory.allocator import Refusal
from kvsim.memory.ledger import Course
from kvsim.request import Request
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class ContinuousScheduler(Scheduler):
    """Schedules running sequences in order of admission, then the waiting queue.

    drafter: decides which drafts are accepted. connection: to a KV connector. in_flight: steps with
    outputs not yet processed. With pipeline parallelism a running sequence with a token in flight
    is in neither `batch` nor `prefilling` until it may get the next one (`rests`). With drafts each
    step of a sequence is a chunk of its plan, unless all sequences verify as a batch. runs, loop:
    the two ways to schedule running sequences, as a batch and one after the other.
    """

    def __init__(self, parts: ContinuousParts) -> None:
        super().__init__(parts.allocator, parts.max_model_len, parts.policies)
        self._parts, self.version, self.knobs = parts, parts.version, parts.knobs
        self.drafter, self._drafts = parts.drafter, parts.drafter.verifies
        connects = parts.connector.connects
        flying = self.in_flight = StepsInFlight(parts.stages, ahead=parts.ahead, connects=connects)
        connection = self.connection = Connection(self, parts, flying, self._computed_tokens)
        if connects:
            self.waiting = connection.queues
        self._staged = parts.stages > 1
        sizes = ChunkSizes(self, parts)
        self.admission = AdmissionLoop(self, parts, sizes, connection, flying)
        loop = self.loop = RunningLoop(self, parts, sizes, connection, flying)
        self.rests = StageRests(self, parts, connection, flying)
        self.runs = BatchRuns(self, loop, parts)
        if not self._drafts:
            self.runs = DecodeRuns(self, loop, parts, connection, flying)

    @property
    def verifier(self) -> Verifier | None:
        return self.drafter if self._drafts else None

    def refusal(self, request: Request) -> Refusal | None:
        return self.special_limits.refusal(request) or budget_refusal(
            request, self.knobs, self.allocator.chunk_tokens, self.drafter.input_slots
        )

    def give_up(self, head: Sequence) -> Refusal | None:
        return self.connection.give_up(head)

    # --- a step ---------------------------------------------------------------------------------

    def schedule(self) -> Plan:
        plan = Plan()
        if self.in_flight.counts:
            self.in_flight.begin()
        if self.connection.connects:
            self.connection.begin()
        self.loop.stuck = False
        threshold = self.knobs.long_prefill_token_threshold
        lone = len(self.running) + len(self.waiting) <= 1
        if lone and self.version.lone_request_ignores_threshold:
            threshold = 0  # no other request to starve
        self.limits.begin()
        budget = self.knobs.max_num_batched_tokens
        left = self.runs.run(plan, budget, threshold)
        if left is None:
            left = self.loop.run(plan, budget, threshold)
        if not plan.preempted:
            self.admission.admit(plan, left, threshold)
        self._close(plan)
        if self.connection.connects or self._staged:
            self._launch(plan)
        return plan

    def _launch(self, plan: Plan) -> None:
        """Add the scheduled plan to those in flight, and pass it to the connector."""
        flying, connection = self.in_flight, self.connection
        outputs = flying.outputs(plan, self.running, self.runs.outputs(plan))
        if connection.connects:
            connection.decide(plan, tuple(self.running), outputs)
            if self._drafts:
                connection.device.note_tables(plan)
        if flying.counts:
            flying.launch(plan, outputs)
        if connection.connects and not self._staged:
            connection.device.decided = plan

    def took_token(self, seq: Sequence, plan: Plan) -> bool:
        return self.in_flight.took_token(seq, plan)

    def compute(self, seq: Sequence, plan: Plan, new_tokens: int, drafts: int = 0) -> None:
        super().compute(seq, plan, new_tokens, drafts)
        self.drafter.began(plan.chunks[-1])

    def preempt(self, victim: Sequence, plan: Plan) -> None:
        if self._drafts:
            for chunk in plan.chunks:
                if chunk.seq is victim:
                    self.drafter.undone(chunk)
        super().preempt(victim, plan)
        self.drafter.preempted(victim)
        self.in_flight.abandon(victim)
        self.connection.preempted(victim)

    # --- the life of a plan ---------------------------------------------------------------------

    def _close(self, plan: Plan) -> Plan:
        if not self._staged:
            return super()._close(plan)
        resting = self.rests.begin(plan)
        super()._close(plan)
        self.rests.end(plan, resting)
        return plan

    def _join(self, seq: Sequence) -> None:
        self.runs.join(seq)

    def _blocked_head(self) -> Sequence | None:
        return self.admission.stopped_at if self.limits.bind else self.waiting.head

    def repeatable(self, plan: Plan, limit: int) -> int:
        if self._staged:
            return self.rests.repeatable(plan, limit)
        if self._drafts:
            if not plan.num_drafts or len(self.running) != self.batch.num:
                return 0
            if self.waiting.head is not None and self.drafter.reads_far_ahead:
                return 0
            limit = min(limit, LONGEST_RUN)
        if not self.connection.connects:
            return self.quiet_steps(plan, limit)
        if len(self.waiting) or self.loop.stuck:
            return 0
        limit = self.quiet_steps(plan, limit)
        return limit and self.connection.quiet_steps(plan, tuple(self.running), limit)

    def run_ended(self, plan: Plan) -> None:
        if self._staged:
            self.rests.run_ended(plan)

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
        found = draft_runs(self, self.loop, self._parts, lags=depth > 1)
        if found is not None:
            self.runs, self.batch = found, found.batch
            if connects:
                self.connection.device.verifies_as_batch(found.batch)

    def repeat(self, plan: Plan, steps: int) -> Course:
        course = super().repeat(plan, steps)
        self.runs.repeated(plan)
        if self._drafts and self.connection.connects:
            self.connection.device.note_turns()
        return course

    def step_returned(self) -> None:
        self.runs.step_returned()

    # --- what returns ---------------------------------------------------------------------------

    def finish(self, plan: Plan) -> list[Sequence]:
        landed: list[Sequence] = []
        if self.in_flight.counts:
            landed = self.in_flight.land(plan)
            self.connection.landed(plan, landed)
        if self._drafts:
            self.runs.verified(plan)
        else:
            super().finish(plan)
        if self._staged:
            self.rests.landed(landed)
        return plan.finishing

    def leave(self, seq: Sequence) -> None:
        if seq not in self.running or not self.connection.keeps(seq):
            super().leave(seq)
            return
        seq.finished = True
        del self.running[seq]
        self.limits.released(seq)
