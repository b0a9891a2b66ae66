"""Running sequences as a batch in closed form, where that equals vLLM's loop over them.

Only those that take blocks are visited, and a run of steps is taken at once.
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
    """Takes no batch here: sequences verify their drafts one after the other.

    loop: over the running sequences of `scheduler`.
    """

    def __init__(self, scheduler: Scheduler, loop: RunningLoop, parts: ContinuousParts) -> None:
        self._scheduler, self._loop, self._drafter = scheduler, loop, parts.drafter

    def run(self, plan: Plan, budget: int, threshold: int) -> int | None:
        """Schedule the running sequences.

        budget: tokens; returns the rest of it. None: nothing is scheduled, and the sequences must
        be scheduled one after the other. threshold: most tokens of one prompt, 0 for no such limit.
        """
        return None

    def join(self, seq: Sequence) -> None:
        """`seq` has all its known tokens computed, and decodes from the next step on."""

    def outputs(self, plan: Plan) -> dict[Sequence, int]:
        """Tokens that `plan`, the newest, puts out for sequences that verify without a chunk."""
        return {}

    def repeated(self, plan: Plan) -> None:
        """`plan` was scheduled for further steps."""

    def step_returned(self) -> None:
        """The oldest step in flight of a repeated plan returned; no sequence finishes with it."""

    def verified(self, plan: Plan) -> None:
        """The last step of `plan` returned: its finished sequences leave, in running order. Content
        of one sequence may duplicate that of another.
        """
        scheduler = self._scheduler
        plan.finishing.sort(key=by_order)
        finishing = set(plan.finishing)
        for chunk in plan.chunks:
            self._drafter.returned(chunk)
            if chunk.seq in finishing:
                scheduler.leave(chunk.seq)
            elif chunk.samples and chunk.seq in scheduler.running:
                scheduler.allocator.checkpoint(chunk.seq, chunk.end_tokens)


class DecodeRuns(BatchRuns):
    """Sequences that decode one token a step."""

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
        """The whole batch decodes, then prompts go on."""
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
        """Whether taking slots for all decoding sequences before prompts go on equals vLLM's order,
        one sequence after the other.
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
