"""Decoding and retraction under SGLang's rules.

All that decode take a token together. Where memory does not suffice, those with the fewest outputs
are retracted, until it does, and go to the end of the queue.
"""

from collections.abc import Iterator
from itertools import count

from mypy_extensions import mypyc_attr

from kvsim.engine.hicache.part import NO_HICACHE, HicachePart
from kvsim.engine.plan import Plan, ScheduledChunk
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.ignore_eos import Span, span
from kvsim.engine.schedulers.sglang.outputs import (
    RETRACT_STEPS,
    InFlight,
    NewTokenRatio,
    Outputs,
)
from kvsim.memory.allocator import Allocator
from kvsim.memory.ledger import Usage
from kvsim.memory.prefix_room import PrefixRoom, prefix_room
from kvsim.sequence import Sequence

OUT_OF_MEMORY = "the engine ran out of memory, and no other request could be retracted (500)"


@mypyc_attr(allow_interpreted_subclasses=True)
class DecodingScheduler(Scheduler):
    """decoders: SGLang's running batch, in its order, including requests with their last token in
    way. ratio: the new-token ratio. hicache: the memory after the device's.
    """

    def __init__(
        self,
        allocator: Allocator,
        max_model_len: int,
        policies: Policies,
        ratio: NewTokenRatio,
        hicache: HicachePart = NO_HICACHE,
    ) -> None:
        super().__init__(allocator, max_model_len, policies)
        self.room = prefix_room(allocator)
        self.ratio = ratio
        self.hicache = hicache
        self.decoders: dict[Sequence, int] = {}  # with numbers that grow in that order
        self._entered = 0
        self._full = False  # no request is admitted
        self._prefilled: list[Sequence] = []  # the last prefill batch, until it is settled
        self._chunked: Sequence | None = None  # with an unfinished prompt
        self._short_head: Sequence | None = None  # head that lacked memory when last tried
        self._in_flight = InFlight()
        self._outputs = Outputs(self.batch, self._in_flight)

    @property
    def step_in_flight(self) -> bool:
        """Whether a step has been scheduled and not returned."""
        return bool(self._in_flight)

    def members(self, plan: Plan) -> list[Sequence]:
        """The batch that was just planned, in its order."""
        return list(self.decoders)

    def _enter(self, seqs: list[Sequence]) -> None:
        """Append these to the decoding requests."""
        self.decoders.update(zip(seqs, count(self._entered), strict=False))
        self._entered += len(seqs)

    def _drop_ending(self) -> bool:
        """Remove requests that end by length with the token in flight. Returns whether any did."""
        ending = list(
            filter(self._outputs.end_by_length, self._in_flight.last_tokens(self.decoders))
        )
        for seq in ending:
            del self.decoders[seq]
            self._full = False
        return bool(ending)

    def _decode(self, plan: Plan) -> None:
        """All that decode take a token; if memory does not suffice some are retracted before."""
        dropped = self._drop_ending()
        if not self.decoders:
            return
        if self._make_room_for_decoders(plan):
            self.ratio.decay()
        elif dropped:
            plan.num_paused = self.batch.num
            return
        else:
            self._retract_until_it_fits(plan)
        self._step_decoders(plan, [])

    def _make_room_for_decoders(self, plan: Plan, *, rides: bool = False) -> bool:
        """Memory for the next token of each; False: not enough, nothing taken.

        rides: they decode in a step with prompts.
        """
        allocator, room, batch = self.allocator, self.room, self.batch
        # Requests with their last token in flight, not known yet, decode once more.
        stopping = self._in_flight.last_tokens(self.decoders)
        last = int(allocator.keeps_last_token)
        if stopping or room.steps_on_its_own or not allocator.steps_that_fit(1):
            need = room.missing_for_step(batch.slots)
            need += sum(allocator.missing_tokens(seq, seq.num_computed + last) for seq in stopping)
            room.make_room(need)
            if need > room.tokens_for_step():
                return False
            self.hicache.room_made()
            unreturned = int(self._in_flight.unreturned_tokens[0])
            room.begin_decode(stopping, unreturned=unreturned, rides=rides)
            room.make_room((batch.num + len(stopping)) * allocator.page_tokens)
            for seq in stopping if last else ():
                if not self._extend(seq, plan, seq.num_computed + last):
                    return False
            if not allocator.steps_that_fit(1):
                for seq in allocator.must_extend():
                    if not self._extend(seq, plan, batch.slots(seq) + 1):
                        return False
        else:
            self.hicache.room_made()
        for seq in stopping:
            start = seq.num_computed
            plan.chunks.append(ScheduledChunk(seq, last, start, False, True, start, start + last))
            seq.num_computed += last
        return True

    def _retract_until_it_fits(self, plan: Plan) -> None:
        """Retract one, and more until the next token of those left fits. They stay in the order in
        which they would have followed.
        """
        order = self._outputs.by_retraction(self.decoders)
        self.decoders = {}
        self._enter(order)
        while self.decoders:
            self._retract(next(reversed(self.decoders)), plan)
            self.room.make_room(RETRACT_STEPS * len(self.decoders))
            if self._make_room_for_decoders(plan):
                break
        outputs = sum(map(self._outputs.of, self.decoders))
        declared = sum(self._outputs.wishes[seq] for seq in self.decoders)
        self.ratio.retracted(outputs, declared, len(self.decoders))

    def _retract(self, seq: Sequence, plan: Plan) -> None:
        """Free the memory of `seq` that the cache does not hold; its token in flight, if there is
        one, is lost.

        The last to decode ends with an error: prompts in progress or copies hold the memory it
        needs (schedule_batch.py, `retract_decode`).
        """
        lone = len(self.decoders) == 1
        if lone and isinstance(self.allocator, PrefixRoom):
            self._end_with_error(seq, plan, OUT_OF_MEMORY)
            self.hicache.left(seq)
            return
        # A buffer that has to grow in place and cannot (SGLang has no such memory) comes back. It
        # keeps its token: without it it would come back no longer, for ever.
        lost = self._in_flight.has_token_of(seq) and not lone
        self._take_memory(seq, plan, lost=lost)
        self.hicache.retracted(seq)

    def _end_with_error(self, seq: Sequence, plan: Plan, why: str) -> None:
        """End `seq` with this error for lack of memory; it does not wait again."""
        self._take_memory(seq, plan, lost=self._in_flight.has_token_of(seq))
        plan.preempted.remove(seq)
        seq.num_preemptions -= 1
        self.num_preemptions -= 1
        self.waiting.remove(seq)
        self.preemption.drop(seq)
        self._outputs.remove(seq)
        plan.failed.append((seq, why))

    def _take_memory(self, seq: Sequence, plan: Plan, *, lost: bool) -> None:
        """Take its memory from `seq`. lost: its token in flight is lost too."""
        del self.decoders[seq]
        self._preempt(seq, plan)
        self._full = False
        if lost:
            self._in_flight.lose_token(seq, plan)

    # --- what others ask ----------------------------------------------------------------------

    def _spans(self) -> Iterator[Span]:
        """How long those that run go on, and what they then give back."""
        for seq in (*self.decoders, *([self._chunked] if self._chunked is not None else [])):
            outputs = self._outputs.of(seq) if seq in self.decoders else seq.num_outputs
            yield span(seq, self._outputs.wishes[seq], outputs, self.ratio.value)

    def _place(self, seq: Sequence) -> int:
        """The place of a decoding sequence in its batch."""
        return self.decoders[seq] if seq in self.decoders else self._prefilled.index(seq)

    def _is_short(self, head: Sequence | None) -> bool:
        """Whether `head` was kept out for memory when last tried."""
        return head is not None and head is self._short_head

    def usage_for(self, head: Sequence | None) -> Usage:
        """Free memory is short where the counters, and not the slots, keep the head out too."""
        usage = self.allocator.usage(None, busy=bool(self.running))
        if self._is_short(head):
            usage = usage._replace(short=usage.short + usage.idle, idle=0)
        return usage
