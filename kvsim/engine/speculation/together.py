"""Sequences whose drafts are verified in step with each other, without touching any of them.

What each verification of a sequence accepts is drawn in advance (see acceptance.py), so its slots
before each of its next steps are known when it joins, for as long as every step verifies all its
drafts. What a step fills and accepts is summed over the members when they join, by the step's
clock; so a step costs as much with one member as with hundreds.

Where a step is scheduled before the one before it has returned (asynchronous scheduling), all
drafts of that one are believed to be right, which brings a sequence to the end of the context
sooner.
"""

from heapq import heappop, heappush
from itertools import pairwise
from operator import add, attrgetter, sub

from kvsim.engine.plan import ScheduledChunk
from kvsim.engine.speculation.verifier import Drafting
from kvsim.memory.verifying import Ahead
from kvsim.sequence import Sequence

LONGEST_PAST = 4096  # steps, whose sums are kept
_order = attrgetter("order")


class Member:
    """since: the clock it joined at. num_verified: its verifications before. ahead, slots: of its
    steps that bring all drafts. accepted: drafts, in each. last_clock: when it has no such step
    left.
    """

    __slots__ = ("accepted", "ahead", "last_clock", "num_verified", "since", "slots")

    def __init__(self, since: int, num_verified: int, ahead: Ahead, accepted: list[int]) -> None:
        self.since, self.num_verified = since, num_verified
        self.ahead, self.slots, self.accepted = ahead, ahead.slots, accepted
        self.last_clock = since + len(accepted)


class VerifyingBatch:
    """Members take one token and `drafts` drafts a step.

    clock: steps so far. num: members. context_tokens: the sum of their slots. last_start_tokens: a
    sequence believed to have more slots has no room for all drafts before the end of the context.
    lags: a step is scheduled before the one before it has returned.
    """

    def __init__(self, drafts: int, last_start_tokens: int, *, lags: bool) -> None:
        self.clock = 0
        self.num = 0
        self.context_tokens = 0
        self._drafts = drafts
        self._last_start = last_start_tokens
        self._lags = lags
        self._members: dict[Sequence, Member] = {}
        self._leaving: list[tuple[int, int, Sequence]] = []
        self._from = 0  # the clock that the sums begin with
        self._new: list[int] = []
        self._accepted: list[int] = []

    def __contains__(self, seq: Sequence) -> bool:
        return seq in self._members

    def members(self) -> list[Sequence]:
        """All of them."""
        return list(self._members)

    def join(self, seq: Sequence) -> Ahead | None:
        """`seq`, whose step just scheduled samples, verifies with the others from the next one on;
        None: it does not join, since it has no step with all drafts.
        """
        drafting: Drafting = seq.drafting
        slots, final, last = [seq.num_computed], seq.final_tokens, self._last_start
        accepts, at, drafts = drafting.accepts, drafting.num_verified, self._drafts
        tokens, length = slots[0], len(accepts)
        believed, returned, known = tokens, tokens, tokens + 1
        if self._lags:
            way = drafting.under_way
            assert way is not None
            believed, returned = way.start_tokens + way.new_tokens, way.start_tokens
            known -= way.num_outputs
        ahead = Ahead(slots, believed, returned, known)
        accepted: list[int] = []
        while tokens < final and believed <= last:
            number = accepts[at % length]
            if number > drafts:
                number = drafts
            at += 1
            believed = tokens + 1 + (drafts if self._lags else number)
            tokens += 1 + number
            accepted.append(number)
            slots.append(tokens)
        if not accepted:
            return None
        if tokens > final:
            slots[-1] = final
        member = Member(self.clock, drafting.num_verified, ahead, accepted)
        self._members[seq] = member
        self.num += 1
        self.context_tokens += slots[0]
        heappush(self._leaving, (member.last_clock, seq.order, seq))
        self._count(slots, accepted, 1)
        return ahead

    def _count(self, slots: list[int], accepted: list[int], sign: int) -> None:
        """Steps from now on fill and accept so much more, or less."""
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

    def last_steps(self, seq: Sequence, limit: int) -> list[ScheduledChunk]:
        """The newest of the steps that a member took with the others, and those before it, as far
        as there are any; at most `limit`.
        """
        member, drafts = self._members[seq], self._drafts
        slots, accepted, done = member.slots, member.accepted, self.clock - member.since
        chunks = []
        for step in range(done - 1, max(-1, done - 1 - limit), -1):
            prior, tokens = slots[step], 1 + drafts
            if self._lags:
                prior = slots[step - 1] + tokens if step else member.ahead.believed
            start, end = slots[step], slots[step + 1]
            chunk = ScheduledChunk(
                seq, tokens, prior, True, True, start, end, drafts, accepted[step]
            )
            chunks.append(chunk)
        return chunks

    def leave(self, seq: Sequence) -> None:
        """`seq` verifies with the others no more; what it has become plain numbers again."""
        member = self._members.pop(seq)
        done = self.clock - member.since
        self.num -= 1
        self.context_tokens -= member.slots[done]
        if done < len(member.accepted):
            self._count(member.slots[done:], member.accepted[done:], -1)
        seq.num_computed = member.slots[done]
        seq.num_outputs = seq.num_computed - seq.prompt_tokens + 1
        seq.drafting.num_verified = member.num_verified + done

    def advance(self) -> tuple[int, int]:
        """All verify once; returns the slots that are valid now, and the drafts accepted."""
        at = self.clock - self._from
        if at > LONGEST_PAST:
            del self._new[:at], self._accepted[:at]
            self._from, at = self.clock, 0
        new, accepted = (self._new[at], self._accepted[at]) if self.num else (0, 0)
        self.clock += 1
        self.context_tokens += new
        return new, accepted

    def steps_to_leave(self) -> int:
        """Steps until the first member has none left (there are members)."""
        while not self._stands(self._leaving[0]):
            heappop(self._leaving)
        return self._leaving[0][0] - self.clock

    def complete(self) -> list[Sequence]:
        """Members that have no steps left now, in `order`."""
        leaving, done = self._leaving, dict[Sequence, None]()
        while leaving and leaving[0][0] <= self.clock:
            entry = heappop(leaving)
            if self._stands(entry):
                done[entry[2]] = None
        return sorted(done, key=_order)

    def contexts(self, steps: int) -> list[int]:
        """The sum of the members' slots before each of the next steps."""
        at, total = self.clock - self._from, self.context_tokens
        found = [total]
        for new in self._new[at : at + steps - 1]:
            total += new
            found.append(total)
        return found

    def longest(self, later: int = 0) -> int:
        """Slots of the member that has most before the step so much later; 0 without members."""
        clock, most = self.clock + later, 0
        for member in self._members.values():
            slots = member.slots[clock - member.since]
            if slots > most:
                most = slots
        return most

    def _stands(self, entry: tuple[int, int, Sequence]) -> bool:
        """Whether an entry still speaks of a member (it may have left and joined again)."""
        clock, order, seq = entry
        member = self._members.get(seq)
        return member is not None and seq.order == order and member.last_clock == clock
