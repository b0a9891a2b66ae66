"""Schedules running sequences as a batch in closed form, where this equals vLLM's loop over them.

Only sequences that take blocks are visited, and a run of equal steps is scheduled at once.
"""

from kvsim.engine.plan import Plan
from kvsim.engine.policies.victims.latest import Latest
from kvsim.engine.schedulers.connection import Connection
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.in_flight import StepsInFlight
from kvsim.engine.schedulers.running_loop import RunningLoop
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.sequence import Sequence, by_order


class BatchRuns:
    """Schedules no batch: with drafts, sequences are scheduled one after the other.

    loop: the loop over running sequences of `scheduler`.
    """

    def __init__(self, scheduler: Scheduler, loop: RunningLoop, parts: ContinuousParts) -> None:
        self._scheduler, self._loop, self._drafter = scheduler, loop, parts.drafter

    def run(self, plan: Plan, budget: int, threshold: int) -> int | None:
        """Schedule the running sequences as a batch; returns the remaining token budget.

        None: nothing is scheduled, and the loop must schedule the sequences one by one. threshold:
        most tokens of one prompt, 0 for no such limit.
        """
        return None

    def join(self, seq: Sequence) -> None:
        """Let `seq`, with all its known tokens computed, decode from the next step on."""

    def outputs(self, plan: Plan) -> dict[Sequence, int]:
        """Output tokens of `plan`, the newest, for each sequence that verifies drafts without a
        chunk.
        """
        return {}

    def repeated(self, plan: Plan) -> None:
        """Called when `plan` was scheduled for further steps."""

    def step_returned(self) -> None:
        """Process the oldest step in flight of a repeated plan; no sequence finishes with it."""

    def verified(self, plan: Plan) -> None:
        """Process the outputs of the last step of `plan`: remove its finished sequences, and cache
        blocks of the others.

        Sequences are processed in running order, since one may cache the same content as another.
        """
        scheduler = self._scheduler
        plan.finishing.sort(key=by_order)
        scheduler.limits.returned(plan, plan.finishing)
        finishing = set(plan.finishing)
        for chunk in plan.chunks:
            self._drafter.returned(chunk)
            if chunk.seq in finishing:
                scheduler.leave(chunk.seq)
            elif chunk.samples and chunk.seq in scheduler.running:
                scheduler.allocator.checkpoint(chunk.seq, chunk.end_tokens)


class DecodeRuns(BatchRuns):
    """Schedules sequences that decode one token a step."""

    def __init__(
        self,
        scheduler: Scheduler,
        loop: RunningLoop,
        parts: ContinuousParts,
        connection: Connection,
        in_flight: StepsInFlight,
    ) -> None:
        super().__init__(scheduler, loop, parts)
        self._in_flight = in_flight
        self._stops_midway = parts.knobs.by_priority and not loop.continues
        # A sequence must be preempted by a rule that may choose the one that asks for room. Under
        # priorities the sequences after that one are then not scheduled in the step. Where frees
        # are deferred it may be that none is preempted.
        latest = isinstance(scheduler.victim, Latest)
        self._in_turns_when_short = (
            not (latest or parts.knobs.by_priority) or connection.defers_frees
        )

    def run(self, plan: Plan, budget: int, threshold: int) -> int | None:
        """Schedule a token of the whole decode batch, then chunks of running prompts."""
        if not self._equals_turns(budget):
            return None
        scheduler, loop, batch = self._scheduler, self._loop, self._scheduler.batch
        if batch.num and not scheduler.allocator.steps_that_fit(1):
            for seq in scheduler.allocator.must_extend():
                room = seq not in scheduler.running or loop.make_room(
                    seq, plan, batch.slots(seq) + 1
                )
                if not room and not loop.continues:
                    break
        scheduler.step_decoders(plan, [])
        for seq in list(scheduler.prefilling):
            left = budget - batch.num - sum(chunk.new_tokens for chunk in plan.chunks)
            if left <= 0 or not loop.continue_prompt(seq, plan, left, threshold):
                break
        return budget - batch.num - sum(chunk.new_tokens for chunk in plan.chunks)

    def _equals_turns(self, budget: int) -> bool:
        """Whether scheduling all decoding sequences before prompts equals vLLM's order of one
        sequence after the other.
        """
        batch = self._scheduler.batch
        if self._stops_midway or batch.num > budget or not self._prefills_come_last():
            return False
        if not self._in_turns_when_short or not batch.num:
            return True
        return self._scheduler.allocator.steps_that_fit(1) > 0

    def _prefills_come_last(self) -> bool:
        """Whether every prefilling sequence was admitted after every decoding one."""
        scheduler, prefilling = self._scheduler, self._scheduler.prefilling
        if not prefilling or not scheduler.batch.num:
            return True
        last = reversed(scheduler.running)
        return all(next(last) in prefilling for _ in prefilling)

    def join(self, seq: Sequence) -> None:
        if self._in_flight.lets_join(seq):
            self._scheduler.batch.join(seq, seq.num_computed)
