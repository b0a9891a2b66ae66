"""Decoding with pipeline stages: a sequence with a token in flight is out of the decode batch until
it may get the next one.

If one step holds all running sequences, they stay in the batch for a run of steps, as with one
stage. The steps between are empty.
"""

from collections.abc import Iterable

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.connection import Connection
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.in_flight import StepsInFlight
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.sequence import Sequence


class StageRests:
    """Moves sequences with a token in flight out of the decode batch and in again."""

    def __init__(
        self,
        scheduler: Scheduler,
        parts: ContinuousParts,
        connection: Connection,
        in_flight: StepsInFlight,
    ) -> None:
        self._scheduler, self._knobs = scheduler, parts.knobs
        self._connection, self._in_flight = connection, in_flight
        self._drafts = parts.drafter.verifies

    def begin(self, plan: Plan) -> list[Sequence]:
        """Note the sequences of `plan`; returns running sequences that wait for a token, and so
        have no step in it.
        """
        scheduler, flying, passed_over = self._scheduler, self._in_flight, set(plan.passed_over)
        flying.newest = plan
        resting = [
            seq
            for seq in scheduler.running
            if seq.in_flight is not None
            and seq not in passed_over
            and not (self._drafts or seq.decoding or seq in scheduler.prefilling)
            and seq.num_outputs < seq.output_tokens
        ]
        for chunk in plan.chunks:
            flying.compute(chunk.seq, plan)
        return resting

    def end(self, plan: Plan, resting: list[Sequence]) -> None:
        """Remove the sequences of the completed `plan` from the batch. resting: the result of
        `begin`.
        """
        scheduler, flying, passed_over = self._scheduler, self._in_flight, set(plan.passed_over)
        plan.passed_over.extend(resting)
        for seq in plan.finishing:
            flying.compute(seq, plan)
        for seq in scheduler.running:
            if seq.decoding and seq not in passed_over:
                scheduler.batch.leave(seq)
                flying.compute(seq, plan)
        if flying.ahead and not self._drafts:
            self._go_on(flying.rested(plan))

    def landed(self, sequences: list[Sequence]) -> None:
        """Let `sequences`, with their newest outputs processed, decode again."""
        if not (self._in_flight.ahead or self._drafts):
            self._go_on(sequences)

    def _go_on(self, sequences: Iterable[Sequence]) -> None:
        """Let `sequences` join the decode batch again, to get their next token from the next step
        on.
        """
        scheduler, flying = self._scheduler, self._in_flight
        for seq in sequences:
            goes_on = seq in scheduler.running and seq not in scheduler.prefilling
            if goes_on and seq.num_outputs < seq.output_tokens and flying.lets_join(seq):
                scheduler.batch.join(seq, seq.num_computed)

    # --- one step alone -------------------------------------------------------------------------

    def repeatable(self, plan: Plan, limit: int) -> int:
        """See `Scheduler.repeatable`. If the result is not 0, the sequences stay in the batch."""
        if not self._holds_all(plan):
            return 0
        scheduler, connection = self._scheduler, self._connection
        running = tuple(scheduler.running)
        if connection.connects:
            if len(scheduler.waiting) or self._in_flight.ahead:
                return 0
            connection.device.scheduled(Plan(), {})  # an empty step is next
            limit = connection.quiet_steps(plan, running, limit)
        for seq in running:
            scheduler.batch.join(seq, seq.num_computed)
        limit = limit and scheduler.quiet_steps(plan, limit)
        if limit and not self._in_flight.ahead:
            self._decide_empty_steps()  # which may free blocks that copies held
            limit = scheduler.quiet_steps(plan, limit)
        if not limit:
            self._part()
        return limit

    def _holds_all(self, plan: Plan) -> bool:
        """Whether all running sequences decode in `plan`, and no waiting one could start in an
        empty step, which has more token budget left.
        """
        scheduler, knobs = self._scheduler, self._knobs
        running, head = len(scheduler.running), scheduler.waiting.head
        if self._drafts or plan.finishing:
            return False
        if plan.num_decode != running or plan.passed_over or plan.preempted or plan.stalls:
            return False
        if head is None or running >= knobs.max_num_seqs:
            return True
        asked = knobs.enable_chunked_prefill and running < knobs.max_num_batched_tokens
        return asked and not scheduler.limits.bind and head.in_flight is None

    def _decide_empty_steps(self) -> None:
        """Count the empty steps on the other stages."""
        for _ in range(self._in_flight.stages - 1):
            self._in_flight.begin()
            self._scheduler.allocator.step_decided()

    def run_ended(self, plan: Plan) -> None:
        """A run of `plan` is over: take its sequences out of the batch."""
        if plan.steps > 1 and not self._in_flight.ahead:
            self._decide_empty_steps()
        self._part()

    def _part(self) -> None:
        """Take the sequences of the newest step out of the batch, until its outputs are
        processed.
        """
        for seq in self._scheduler.running:
            if seq.decoding:
                self._scheduler.batch.leave(seq)
