"""The decode batch: all decoding sequences, advanced together without touching any of them."""

from heapq import heappop, heappush
from operator import attrgetter

from kvsim.sequence import Sequence

_order = attrgetter("order")


class DecodeBatch:
    """Counts decode steps in `clock`; a member that joined at clock j with n slots has
    n - j + clock of them (`seq.base` is n - j), and leaves when that reaches its final slots.

    num: members. context_tokens: the sum of their slots.
    """

    def __init__(self) -> None:
        self.clock = 0
        self.num = 0
        self._base_sum = 0
        self._leaving: list[tuple[int, int, Sequence]] = []
        self._longest: list[tuple[int, int, Sequence]] = []

    @property
    def context_tokens(self) -> int:
        return self._base_sum + self.num * self.clock

    def slots(self, seq: Sequence) -> int:
        """Slots of a member, those of the step being scheduled included."""
        return seq.base + self.clock

    def join(self, seq: Sequence, num_tokens: int) -> None:
        """`seq`, holding `num_tokens` < final slots, decodes from the next step on."""
        seq.decoding = True
        seq.base = num_tokens - self.clock
        self.num += 1
        self._base_sum += seq.base
        heappush(self._leaving, (seq.final_tokens - seq.base, seq.order, seq))
        heappush(self._longest, (-seq.base, seq.order, seq))

    def leave(self, seq: Sequence) -> None:
        """`seq` decodes no more; its slots and outputs become plain numbers again."""
        seq.decoding = False
        self.num -= 1
        self._base_sum -= seq.base
        seq.num_computed = seq.base + self.clock
        seq.num_outputs = seq.num_computed - seq.prompt_tokens + 1

    def advance(self, steps: int) -> None:
        self.clock += steps

    def steps_to_leave(self) -> int:
        """Steps until the first member has all its slots (the batch is not empty)."""
        leaving = self._leaving
        while not self._stands(leaving[0][0], leaving[0][2], leaving[0][1]):
            heappop(leaving)
        return leaving[0][0] - self.clock

    def complete(self) -> list[Sequence]:
        """Members that have all their slots now, in `order`."""
        leaving = self._leaving
        done: list[Sequence] = []
        while leaving and leaving[0][0] <= self.clock:
            clock, order, seq = heappop(leaving)
            again = bool(done) and done[-1] is seq  # it left and came back at the same clock
            if self._stands(clock, seq, order) and not again:
                done.append(seq)
        return sorted(done, key=_order) if len(done) > 1 else done

    def longest_context_tokens(self) -> int:
        """Slots of the longest member; 0 if there is none."""
        longest = self._longest
        while longest:
            base, order, seq = longest[0]
            if seq.decoding and seq.order == order and seq.base == -base:
                return self.clock - base
            heappop(longest)
        return 0

    @staticmethod
    def _stands(clock: int, seq: Sequence, order: int) -> bool:
        """Whether a heap entry still speaks of a member (it may have left and joined again)."""
        return seq.decoding and seq.order == order and seq.final_tokens - seq.base == clock
