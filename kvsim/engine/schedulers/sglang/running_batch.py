"""The decoding requests of an SGLang engine, and their retraction.

All of them decode one token together. If memory does not suffice, those with the fewest outputs are
retracted until it does, and queued again at the end.
"""

from collections.abc import Iterator
from itertools import count

from kvsim.engine.plan import Plan, ScheduledChunk
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.ignore_eos import Span, span
from kvsim.engine.schedulers.sglang.outputs import (
    RETRACT_STEPS,
    NewTokenRatio,
    Outputs,
)
from kvsim.engine.schedulers.sglang.parts import EngineSide, HicachePart
from kvsim.memory.prefix_room import PrefixRoom, RoomOnDemand
from kvsim.sequence import Sequence


class RunningBatch:
    """SGLang's running batch.

    members: its requests, numbered in batch order; requests with their last token in flight are
    included. full: no request is admitted. ratio: the new-token ratio. first_tokens: prompt tokens
    of the prefill batch from which this batch began; SGLang counts them as launched again in each
    decode step.

    prompts: the last prefill batch, until the next pass; prompt_tokens: tokens that it computes.
    chunked: the request with a prompt in progress in that batch. finished: requests that have
    finished since the last pass.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        room: PrefixRoom,
        ratio: NewTokenRatio,
        outputs: Outputs,
        side: EngineSide,
        hicache: HicachePart,
    ) -> None:
        self._scheduler, self._room = scheduler, room
        self._side, self._hicache = side, hicache
        self.ratio, self.outputs, self.in_flight = ratio, outputs, outputs.in_flight
        self.prompts: list[Sequence] = []
        self.prompt_tokens = 0
        self.chunked: Sequence | None = None
        self.finished: list[Sequence] = []
        self.members: dict[Sequence, int] = {}
        self._entered = self.first_tokens = 0
        self.full = False

    def enter(self, seqs: list[Sequence]) -> None:
        """Append `seqs`, the requests of a prefill batch. If the running batch is empty, the
        prefill batch becomes the running batch.
        """
        if seqs and not self.members:
            self.full, self.first_tokens = False, self.prompt_tokens
        self._append(seqs)

    def _append(self, seqs: list[Sequence]) -> None:
        self.members.update(zip(seqs, count(self._entered), strict=False))
        self._entered += len(seqs)

    def drop_finished(self) -> None:
        """Remove finished requests, since their last outputs have been processed."""
        for seq in self.finished:
            if seq in self.members:
                del self.members[seq]
                self.full = False
            self.outputs.remove(seq)
        self.finished = []

    def drop_ending(self) -> bool:
        """Remove requests that end by length with the token in flight; returns whether there were
        any.
        """
        if not self._side.looks_ahead:
            return False
        ending = list(filter(self.outputs.end_by_length, self.in_flight.last_tokens(self.members)))
        for seq in ending:
            del self.members[seq]
            self.full = False
        return bool(ending)

    def spans(self) -> Iterator[Span]:
        """Spans of the members: output tokens to come, and tokens freed at the end."""
        outputs, ratio = self.outputs, self.ratio.value
        for seq in self.members:
            yield span(seq, outputs.wishes[seq], outputs.of(seq), ratio)

    # --- a decode step --------------------------------------------------------------------------

    def decode(self, plan: Plan) -> None:
        """Decode one token of all members; if memory does not suffice, some are retracted first."""
        dropped = self.drop_ending()
        if not self.members:
            return
        if self.make_room(plan):
            self.ratio.decay()
        elif dropped:
            plan.num_paused = self._scheduler.batch.num
            return
        else:
            self._retract_until_it_fits(plan)
        self._scheduler.step_decoders(plan, [])

    def make_room(self, plan: Plan, *, rides: bool = False) -> bool:
        """Allocate memory for the next token of each member; False: it does not suffice.

        rides: they decode in a step with prompts.
        """
        scheduler, room = self._scheduler, self._room
        allocator, batch = scheduler.allocator, scheduler.batch
        # Requests decode once more while their last token is in flight.
        stopping = self.in_flight.last_tokens(self.members)
        last = int(allocator.keeps_last_token)
        if stopping or room.steps_on_its_own or not allocator.steps_that_fit(1):
            need = room.missing_for_step(batch.slots)
            need += sum(allocator.missing_tokens(seq, seq.num_computed + last) for seq in stopping)
            room.make_room(need)
            if need > room.tokens_for_step():
                return False
            self._hicache.room_made()
            unreturned = int(self.in_flight.unreturned_tokens[0])
            room.begin_decode(stopping, unreturned=unreturned, rides=rides)
            room.make_room((batch.num + len(stopping)) * allocator.page_tokens)
            for seq in stopping if last else ():
                if not scheduler.extend(seq, plan, seq.num_computed + last):
                    return False
            if not allocator.steps_that_fit(1):
                for seq in allocator.must_extend():
                    if not scheduler.extend(seq, plan, batch.slots(seq) + 1):
                        return False
        else:
            self._hicache.room_made()
        for seq in stopping:
            start = seq.num_computed
            plan.chunks.append(ScheduledChunk(seq, last, start, False, True, start, start + last))
            seq.num_computed += last
        return True

    # --- retraction -----------------------------------------------------------------------------

    def _retract_until_it_fits(self, plan: Plan) -> None:
        """Retract at least one request, and more until the next token of each remaining one fits.

        The remaining ones stay sorted in the order of retraction.
        """
        order = self.outputs.by_retraction(self.members)
        self.members = {}
        self._append(order)
        while self.members:
            self.retract(next(reversed(self.members)), plan)
            self._room.make_room(RETRACT_STEPS * len(self.members))
            if self.make_room(plan):
                break
        outputs = sum(map(self.outputs.of, self.members))
        declared = sum(self.outputs.wishes[seq] for seq in self.members)
        self.ratio.retracted(outputs, declared, len(self.members))

    def retract(self, seq: Sequence, plan: Plan) -> None:
        """Free the memory of `seq` that the prefix cache does not hold; its token in flight is
        discarded.

        The last decoding request may end with an error instead: prompts in progress or copies hold
        the memory that it needs.
        """
        lone = len(self.members) == 1
        error = self._side.refuses_to_retract(seq, lone=lone)
        if error is not None and not isinstance(self._room, RoomOnDemand):
            self._end_with_error(seq, plan, error)
            return
        # A buffer that has to grow in place and cannot (SGLang has no such memory) comes back. It
        # keeps its token: without it it would come back no longer, for ever.
        self._side.retracting(seq, plan)
        self._take_memory(seq, plan, lost=self.in_flight.has_token_of(seq) and not lone)
        self._hicache.retracted(seq)

    def displace(self, seq: Sequence, plan: Plan) -> None:
        """Retract `seq` for a more urgent request."""
        self._side.retracting(seq, plan)
        self._take_memory(seq, plan, lost=self.in_flight.has_token_of(seq))
        self._room.make_room(RETRACT_STEPS * len(self.members))
        self._hicache.retracted(seq)

    def _end_with_error(self, seq: Sequence, plan: Plan, why: str) -> None:
        """End `seq` with error `why` for lack of memory, instead of queueing it again."""
        scheduler = self._scheduler
        self._take_memory(seq, plan, lost=self.in_flight.has_token_of(seq))
        plan.preempted.remove(seq)
        seq.num_preemptions -= 1
        scheduler.num_preemptions -= 1
        scheduler.waiting.remove(seq)
        scheduler.preemption.drop(seq)
        self.outputs.remove(seq)
        plan.failed.append((seq, why))
        self._side.failed(seq)
        self._hicache.left(seq)

    def _take_memory(self, seq: Sequence, plan: Plan, *, lost: bool) -> None:
        """Free the memory of `seq`. lost: its token in flight is discarded too."""
        del self.members[seq]
        self._scheduler.preempt(seq, plan)
        if plan.rejoined:
            plan.rejoined = [other for other in plan.rejoined if other is not seq]
        self.full = False
        if lost:
            self.in_flight.lose_token(seq, plan)
