"""The decode batch: all decoding sequences, advanced together without touching any of them."""

from heapq import heappop, heappush
from operator import attrgetter

from kvsim.memory.allocator import Allocator
from kvsim.memory.ledger import Course
from kvsim.sequence import DecodeClock, Sequence
from kvsim.step import StepShape

_order = attrgetter("order")


class DecodeBatch:
    """The decoding sequences of a scheduler and of its allocator, which advance together. A member
    leaves when it has its final slots.

    num: number of members. context_tokens: sum of their slots.
    """

    def __init__(self, allocator: Allocator) -> None:
        self.num = 0
        self._clock = DecodeClock()
        self._allocator = allocator
        self._base_sum = 0
        self._leaving: list[tuple[int, int, Sequence]] = []
        self._longest: list[tuple[int, int, Sequence]] = []

    @property
    def clock(self) -> int:
        """Decode steps so far."""
        return self._clock.steps

    @property
    def context_tokens(self) -> int:
        return self._base_sum + self.num * self._clock.steps

    def slots(self, seq: Sequence) -> int:
        """Slots of a member, including those of the step being scheduled."""
        return self._clock.slots(seq)

    def __contains__(self, seq: Sequence) -> bool:
        return seq.decoding

    # --- members --------------------------------------------------------------------------------

    def join(self, seq: Sequence, num_tokens: int) -> None:
        """`seq`, with num_tokens < final slots, decodes from the next step on."""
        base = self._clock.join(seq, num_tokens)
        seq.decoding = True
        self.num += 1
        self._base_sum += base
        heappush(self._leaving, (seq.final_tokens - base, seq.order, seq))
        heappush(self._longest, (-base, seq.order, seq))
        self._allocator.join(seq, num_tokens)

    def leave(self, seq: Sequence) -> None:
        """`seq` stops decoding; its slots and outputs become plain numbers again."""
        seq.decoding = False
        self.num -= 1
        self._base_sum -= seq.base
        seq.num_computed = self._clock.slots(seq)
        seq.num_outputs = seq.num_computed - seq.prompt_tokens + 1
        self._allocator.leave(seq)

    # --- steps ----------------------------------------------------------------------------------

    def step(self) -> None:
        """All members take one slot in the step being scheduled."""
        self._allocator.step()
        self._clock.steps += 1

    def advance(self, steps: int) -> Course:
        """All members take one slot in each of `steps` steps; returns the change of the ledger."""
        course = self._allocator.advance(steps)
        self._clock.steps += steps
        return course

    def steps_that_fit(self, limit: int) -> int:
        """Number of steps, at most `limit`, for which memory suffices without `must_extend`."""
        return self._allocator.steps_that_fit(limit)

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        """Number of steps, at most `limit`, in which `head`, which could not start, still
        cannot.
        """
        return self._allocator.steps_head_stays_blocked(head, limit, busy=busy)

    def shapes(self, steps: int) -> list[StepShape]:
        """The shapes of the next `steps` steps if each verifies drafts."""
        return []

    def steps_to_leave(self) -> int:
        """Steps until the first member has all its slots (the batch is not empty)."""
        leaving = self._leaving
        while not self._stands(leaving[0][0], leaving[0][2], leaving[0][1]):
            heappop(leaving)
        return leaving[0][0] - self._clock.steps

    def complete(self) -> list[Sequence]:
        """Members that have all their slots now, in `order`."""
        leaving = self._leaving
        done: list[Sequence] = []
        while leaving and leaving[0][0] <= self._clock.steps:
            clock, order, seq = heappop(leaving)
            again = bool(done) and done[-1] is seq  # left and rejoined at the same clock
            if self._stands(clock, seq, order) and not again:
                done.append(seq)
        return sorted(done, key=_order) if len(done) > 1 else done

    def longest_context_tokens(self) -> int:
        """Slots of the longest member; 0 if there is none."""
        longest = self._longest
        while longest:
            base, order, seq = longest[0]
            if seq.decoding and seq.order == order and seq.base == -base:
                return self._clock.steps - base
            heappop(longest)
        return 0

    @staticmethod
    def _stands(clock: int, seq: Sequence, order: int) -> bool:
        """Whether a heap entry is of a current member, which may have left and joined again."""
        return seq.decoding and seq.order == order and seq.final_tokens - seq.base == clock
