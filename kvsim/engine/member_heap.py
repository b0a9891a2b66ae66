"""The members of a decode batch by a number that follows from their base."""

from heapq import heappop, heappush, heapreplace

from kvsim.sequence import Sequence


class MemberHeap:
    """Members by `-base`, or, with by_end, by the clock at which they have their final slots.

    The base of a sequence that rests while others step falls, so its number grows. An entry may
    therefore be too small for its sequence. It is brought up to date when it is the first one, so
    a sequence that leaves and rejoins at every token costs no entry a token.
    """

    def __init__(self, *, by_end: bool) -> None:
        self._by_end = by_end
        self._heap: list[tuple[int, int, Sequence]] = []
        self._entered: dict[Sequence, int] = {}  # the number of its entry that counts

    def join(self, seq: Sequence) -> None:
        """`seq`, whose base is set, is a member."""
        number = self._number(seq)
        entered = self._entered.get(seq)
        if entered is None or number < entered:
            self._entered[seq] = number
            heappush(self._heap, (number, seq.order, seq))

    def first(self) -> Sequence | None:
        """The member with the smallest number; None if there is no member."""
        heap, entered = self._heap, self._entered
        while heap:
            number, _, seq = heap[0]
            if entered.get(seq) != number:  # a smaller one was entered, or it was popped
                heappop(heap)
            elif not seq.decoding:
                heappop(heap)
                del entered[seq]
            else:
                current = self._number(seq)
                if current == number:
                    return seq
                entered[seq] = current
                heapreplace(heap, (current, seq.order, seq))
        return None

    def pop(self) -> None:
        """Remove the entry of the first member."""
        _, _, seq = heappop(self._heap)
        del self._entered[seq]

    def _number(self, seq: Sequence) -> int:
        return seq.final_tokens - seq.base if self._by_end else -seq.base
