"""The decode batch with drafts: all members verify their drafts in lockstep, computed in closed
form without a visit to each.

The accepted drafts of each verification are drawn in advance (see acceptance.py). So a sequence's
slots before each of its next steps are known when it joins, as long as every step verifies all its
drafts. When members join, the slots filled and drafts accepted by each step are summed over
members. So a step costs as much with one member as with hundreds.

Under asynchronous scheduling all drafts of the step in flight are assumed to be accepted, so a
sequence reaches the end of the context sooner.
"""

from bisect import bisect_left
from collections import deque
from heapq import heappop, heappush
from itertools import pairwise
from operator import add, sub

from kvsim.engine.decode_batch import DecodeBatch
from kvsim.engine.plan import ScheduledChunk
from kvsim.engine.speculation.verifier import Drafting
from kvsim.memory.allocator import Allocator
from kvsim.memory.ledger import Course
from kvsim.memory.verifying import Ahead, Verifying
from kvsim.plumbing.errors import InvariantError
from kvsim.sequence import Sequence, by_order
from kvsim.step import StepShape

LONGEST_PAST = 4096  # steps with stored sums


class StepInFlight:
    """A step in flight, in which `num` members verify all their drafts; it accepts `accepted` in
    sum.

    left: the step as a chunk of each sequence that has left the batch since.
    """

    def __init__(self, num: int, accepted: int) -> None:
        self.num, self.accepted = num, accepted
        self.left: list[ScheduledChunk] = []


class LockstepMember:
    """A member's precomputed steps.

    since: clock at which it joined. num_verified: its verifications before. slots[i]: slots before
    its i-th step that verifies all drafts. accepted[i]: drafts accepted by that step. ahead: these
    slots, with the scheduler's counts at the start. last_clock: clock at which it has no such step
    left.
    """

    __slots__ = ("accepted", "ahead", "last_clock", "num_verified", "since", "slots")

    def __init__(self, since: int, num_verified: int, ahead: Ahead, accepted: list[int]) -> None:
        self.since, self.num_verified = since, num_verified
        self.ahead, self.slots, self.accepted = ahead, ahead.slots, accepted
        self.last_clock = since + len(accepted)


class LockstepBatch(DecodeBatch):
    """Members compute one token and `drafts` drafts a step.

    tables: the members' block tables. last_start_tokens: sequences optimistically longer than this
    cannot fit all draft tokens below max_model_len. lags: asynchronous scheduling. new_slots: slots
    that the last step made valid, in sum. turned: members that took blocks since the list was last
    read; None: not tracked. step_tokens: tokens of a member's step.
    """

    def __init__(
        self,
        allocator: Allocator,
        tables: Verifying,
        drafts: int,
        last_start_tokens: int,
        *,
        lags: bool,
    ) -> None:
        super().__init__(allocator)
        self.tables = tables
        self.new_slots = 0
        self.in_flight: deque[StepInFlight] = deque()
        self.turned: list[Sequence] | None = None
        self.step_tokens = 1 + drafts
        self._drafts = drafts
        self._last_start = last_start_tokens
        self._lags = lags
        self._slots = 0  # of all members
        self._members: dict[Sequence, LockstepMember] = {}
        self._leaving: list[tuple[int, int, Sequence]] = []
        self._from = 0  # the clock that the sums begin with
        self._new: list[int] = []
        self._accepted: list[int] = []

    def __contains__(self, seq: Sequence) -> bool:
        return seq in self._members

    @property
    def context_tokens(self) -> int:
        return self._slots

    def slots(self, seq: Sequence) -> int:
        member = self._members[seq]
        return member.slots[self.clock - member.since]

    def longest_context_tokens(self) -> int:
        return self._longest_slots(0)

    def last_step(self, seq: Sequence) -> tuple[int, int] | None:
        member = self._members.get(seq)
        done = 0 if member is None else self.clock - member.since
        if member is None or not done:
            return None
        return member.slots[done - 1], member.slots[done]

    def newest_left(self) -> list[ScheduledChunk]:
        return self.in_flight[-1].left

    def take_turned(self) -> list[Sequence]:
        found = self.turned or []
        if found:
            self.turned = []
        return found

    def outputs(self) -> dict[Sequence, int]:
        """Number of output tokens of the newest step for each of its sequences."""
        found = {chunk.seq: chunk.num_outputs for chunk in self.in_flight[-1].left}
        for seq, member in self._members.items():
            done = self.clock - member.since
            if done:
                found[seq] = member.slots[done] - member.slots[done - 1]
        return found

    def steps_below(self, seq: Sequence, slots: int) -> int:
        member = self._members[seq]
        done = self.clock - member.since
        return bisect_left(member.slots, slots, done) - done

    # --- members --------------------------------------------------------------------------------

    def members(self) -> list[Sequence]:
        """All members, in order of joining."""
        return list(self._members)

    def join(self, seq: Sequence, num_tokens: int) -> None:
        """Add `seq`, with a step just scheduled that samples: it verifies in lockstep from the next
        step on.

        It does not join if no step is left in which it can verify the full number of drafts.
        """
        drafting: Drafting = seq.drafting
        slots, final, last = [num_tokens], seq.final_tokens, self._last_start
        accepts, at, drafts = drafting.accepts, drafting.num_verified, self._drafts
        tokens, length = slots[0], len(accepts)
        counted, returned, known = tokens, tokens, tokens + 1
        if self._lags:
            way = drafting.under_way
            assert way is not None
            counted, returned = way.start_tokens + way.new_tokens, way.start_tokens
            known -= way.num_outputs
        ahead = Ahead(slots, counted, returned, known)
        accepted: list[int] = []
        while tokens < final and counted <= last:
            number = accepts[at % length]
            if number > drafts:
                number = drafts
            at += 1
            counted = tokens + 1 + (drafts if self._lags else number)
            tokens += 1 + number
            accepted.append(number)
            slots.append(tokens)
        if not accepted:
            return
        if tokens > final:
            slots[-1] = final
        member = LockstepMember(self.clock, drafting.num_verified, ahead, accepted)
        self._members[seq] = member
        self.num += 1
        self._slots += slots[0]
        heappush(self._leaving, (member.last_clock, seq.order, seq))
        self._count(slots, accepted, 1)
        self.tables.join(seq, ahead)

    def _count(self, slots: list[int], accepted: list[int], sign: int) -> None:
        """Add (sign 1) or subtract (-1) a member's slots and accepted drafts in the sums of the
        next steps.
        """
        start, steps = self.clock - self._from, len(accepted)
        end = start + steps
        if end > len(self._new):
            more = [0] * (end - len(self._new))
            self._new += more
            self._accepted += more
        new = (later - before for before, later in pairwise(slots))
        total = add if sign > 0 else sub
        self._new[start:end] = map(total, self._new[start:end], new)
        self._accepted[start:end] = map(total, self._accepted[start:end], accepted)

    def leave(self, seq: Sequence) -> None:
        """Remove `seq`: its slots and outputs are stored as numbers again, and its steps in flight
        become chunks.
        """
        self.tables.leave(seq)
        member = self._members.pop(seq)
        done = self.clock - member.since
        steps = self._last_steps(seq, member, done)
        self.num -= 1
        self._slots -= member.slots[done]
        if done < len(member.accepted):
            self._count(member.slots[done:], member.accepted[done:], -1)
        drafting: Drafting = seq.drafting
        seq.num_computed = member.slots[done]
        seq.num_outputs = seq.num_computed - seq.prompt_tokens + 1
        drafting.num_verified = member.num_verified + done
        if steps:
            drafting.under_way = steps[0]
        for step, chunk in zip(reversed(self.in_flight), steps, strict=False):
            step.left.append(chunk)

    def _last_steps(self, seq: Sequence, member: LockstepMember, done: int) -> list[ScheduledChunk]:
        """The steps in flight that a member took in the batch, as chunks, the newest first."""
        slots, accepted, tokens = member.slots, member.accepted, 1 + self._drafts
        chunks = []
        for step in range(done - 1, max(-1, done - 1 - len(self.in_flight)), -1):
            prior = slots[step]
            if self._lags:
                prior = slots[step - 1] + tokens if step else member.ahead.counted
            ends = slots[step], slots[step + 1]
            chunks.append(
                ScheduledChunk(
                    seq, tokens, prior, True, True, *ends, tokens - 1, accepted[step], verifies=True
                )
            )
        return chunks

    # --- steps ----------------------------------------------------------------------------------

    def due(self) -> list[Sequence]:
        """Members to visit before the next step, in `order`: those that need blocks, or have full
        blocks to cache.
        """
        return self.tables.due()

    def take(self, seq: Sequence) -> bool:
        """Allocate and cache blocks of a member that is due; False: no room, nothing changed."""
        took = self.tables.take(seq)
        if took and self.turned is not None:
            self.turned.append(seq)
        return took

    def step(self) -> None:
        """Verify the drafts of all members once; members that needed blocks have them."""
        at = self.clock - self._from
        if at > LONGEST_PAST:
            del self._new[:at], self._accepted[:at]
            self._from, at = self.clock, 0
        self.new_slots, accepted = (self._new[at], self._accepted[at]) if self.num else (0, 0)
        self._clock.steps += 1
        self._slots += self.new_slots
        self.tables.advance(self.new_slots)
        self.in_flight.append(StepInFlight(self.num, accepted))

    def advance(self, steps: int) -> Course:
        """Process the members that are due, then one step; returns no change of the ledger.

        There is no closed form for it, as each step fills as many slots as it accepts.
        """
        for seq in self.due():
            if not self.take(seq):
                raise InvariantError(f"{seq} verifies drafts in slots it does not hold")
        self.step()
        return Course()

    def steps_that_fit(self, limit: int) -> int:
        return self.tables.steps_that_fit(limit)

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        return self.tables.steps_head_stays_blocked(head, limit)

    def steps_to_leave(self) -> int:
        """Number of steps until the first member has none left. The batch must not be empty."""
        while not self._is_member(self._leaving[0]):
            heappop(self._leaving)
        return self._leaving[0][0] - self.clock

    def complete(self) -> list[Sequence]:
        """Members that have no steps left now, in `order`."""
        leaving, done = self._leaving, dict[Sequence, None]()
        while leaving and leaving[0][0] <= self.clock:
            entry = heappop(leaving)
            if self._is_member(entry):
                done[entry[2]] = None
        return sorted(done, key=by_order)

    def shapes(self, steps: int) -> list[StepShape]:
        """Shapes of the next `steps` steps, for the step-time model."""
        num, drafts = self.num, self._drafts
        tokens, found = 1 + drafts, []
        at, context = self.clock - self._from, self._slots
        for later in range(steps if num else 0):
            if later:
                context += self._new[at + later - 1]
            longest = self._longest_slots(later) + tokens
            found.append(StepShape((), num, context + num * tokens, longest, num * drafts))
        return found or [StepShape((), 0, 0)] * steps

    def _longest_slots(self, later: int) -> int:
        """Most slots of any member before the step that is `later` steps ahead."""
        clock, most = self.clock + later, 0
        for member in self._members.values():
            slots = member.slots[clock - member.since]
            if slots > most:
                most = slots
        return most

    def _is_member(self, entry: tuple[int, int, Sequence]) -> bool:
        """Whether a heap entry is valid: its sequence may have left and joined again."""
        clock, order, seq = entry
        member = self._members.get(seq)
        return member is not None and seq.order == order and member.last_clock == clock
