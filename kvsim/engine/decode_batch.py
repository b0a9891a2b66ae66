"""The decode batch: all decoding sequences advance together in closed form, without a visit to
each.
"""

from abc import abstractmethod
from heapq import heappop, heappush, heapreplace

from kvsim.engine.plan import ScheduledChunk
from kvsim.memory.allocator import Allocator
from kvsim.memory.ledger import Course
from kvsim.sequence import DecodeClock, Sequence, by_order
from kvsim.step import StepShape


class DecodeBatch:
    """The decoding sequences of a scheduler and of its allocator, which advance together.

    A member leaves when it has its final slots. num: number of members. step_tokens: tokens that
    each member computes in a step.
    """

    def __init__(self, allocator: Allocator) -> None:
        self.num = 0
        self.step_tokens = 1
        self._clock = DecodeClock()
        self._allocator = allocator

    @property
    def clock(self) -> int:
        """Number of decode steps so far."""
        return self._clock.steps

    @property
    @abstractmethod
    def context_tokens(self) -> int:
        """Sum of the members' slots."""

    @abstractmethod
    def slots(self, seq: Sequence) -> int:
        """Slots of a member, including those of the step being scheduled."""

    @abstractmethod
    def __contains__(self, seq: Sequence) -> bool:
        """Whether `seq` is a member."""

    @abstractmethod
    def longest_context_tokens(self) -> int:
        """Slots of the longest member; 0 if there is none."""

    # --- members --------------------------------------------------------------------------------

    @abstractmethod
    def join(self, seq: Sequence, num_tokens: int) -> None:
        """Let `seq` with num_tokens slots, fewer than its final number, decode from the next step
        on.
        """

    @abstractmethod
    def leave(self, seq: Sequence) -> None:
        """Remove `seq`. Its slots and outputs are stored as numbers again, not as a difference of
        clocks.
        """

    @abstractmethod
    def complete(self) -> list[Sequence]:
        """Members that have their final slots now, in `order`."""

    # --- steps ----------------------------------------------------------------------------------

    @abstractmethod
    def step(self) -> None:
        """Give all members the slots of one step, which is being scheduled."""

    @abstractmethod
    def advance(self, steps: int) -> Course:
        """Give all members the slots of `steps` steps; returns the change of the memory ledger."""

    @abstractmethod
    def steps_that_fit(self, limit: int) -> int:
        """Number of steps, at most `limit`, for which memory suffices while no member has to get
        memory on its own (`must_extend`).
        """

    @abstractmethod
    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        """Number of further steps, at most `limit`, in which `head`, which could not start, still
        cannot.
        """

    @abstractmethod
    def steps_to_leave(self) -> int:
        """Number of steps until the first member has its final slots. The batch must not be
        empty.
        """

    # --- drafts ---------------------------------------------------------------------------------

    def shapes(self, steps: int) -> list[StepShape]:
        """Shapes (numbers of tokens and contexts) of the next `steps` steps if each verifies
        drafts; else none.
        """
        return []

    def last_step(self, seq: Sequence) -> tuple[int, int] | None:
        """(slots before, slots after) the newest step of a member that verifies drafts.

        None for a member that only decodes, or that has had no step in the batch.
        """
        return None

    def steps_below(self, seq: Sequence, slots: int) -> int:
        """Number of further steps before which a member has fewer than `slots` slots."""
        return slots - self.slots(seq)

    def newest_left(self) -> list[ScheduledChunk]:
        """The newest step of each sequence that took it in the batch and has left since, as
        chunks.
        """
        return []

    def take_turned(self) -> list[Sequence]:
        """Return members that took blocks for drafts since the last call."""
        return []


class TokenBatch(DecodeBatch):
    """Members decode one token a step. Each stores the clock at which it joined, so its slots
    follow from the clock.
    """

    def __init__(self, allocator: Allocator) -> None:
        super().__init__(allocator)
        self._base_sum = 0
        self._ends, self._longest = MemberHeap(by_end=True), MemberHeap(by_end=False)

    @property
    def context_tokens(self) -> int:
        return self._base_sum + self.num * self._clock.steps

    def slots(self, seq: Sequence) -> int:
        return self._clock.slots(seq)

    def __contains__(self, seq: Sequence) -> bool:
        return seq.decoding

    def longest_context_tokens(self) -> int:
        longest = self._longest.first()
        return 0 if longest is None else self._clock.slots(longest)

    # --- members --------------------------------------------------------------------------------

    def join(self, seq: Sequence, num_tokens: int) -> None:
        base = self._clock.join(seq, num_tokens)
        seq.decoding = True
        self.num += 1
        self._base_sum += base
        self._ends.join(seq)
        self._longest.join(seq)
        self._allocator.join(seq, num_tokens)

    def leave(self, seq: Sequence) -> None:
        seq.decoding = False
        self.num -= 1
        self._base_sum -= seq.base
        seq.num_computed = self._clock.slots(seq)
        seq.num_outputs = seq.num_computed - seq.prompt_tokens + 1
        self._ends.leave(seq)
        self._longest.leave(seq)
        self._allocator.leave(seq)

    def complete(self) -> list[Sequence]:
        ends, done = self._ends, list[Sequence]()
        first = ends.first()
        while first is not None and first.final_tokens - first.base <= self._clock.steps:
            ends.pop()
            done.append(first)
            first = ends.first()
        return sorted(done, key=by_order) if len(done) > 1 else done

    # --- steps ----------------------------------------------------------------------------------

    def step(self) -> None:
        self._allocator.step()
        self._clock.steps += 1

    def advance(self, steps: int) -> Course:
        course = self._allocator.advance(steps)
        self._clock.steps += steps
        return course

    def steps_that_fit(self, limit: int) -> int:
        return self._allocator.steps_that_fit(limit)

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        return self._allocator.steps_head_stays_blocked(head, limit, busy=busy)

    def steps_to_leave(self) -> int:
        first = self._ends.first()
        assert first is not None
        return first.final_tokens - first.base - self._clock.steps


class MemberHeap:
    """Heap of members by `-base`, the most slots first; with by_end, by the clock at which they
    have their final slots.

    base: slots minus the clock. It falls while a sequence rests and others step, so the key grows.
    An entry may therefore have too small a key. It is updated when it reaches the head, so a
    sequence that leaves and rejoins at every token adds no entry a token.
    """

    def __init__(self, *, by_end: bool) -> None:
        self._by_end = by_end
        self._heap: list[tuple[int, int, Sequence]] = []
        self._entered: dict[Sequence, int] = {}  # the number of its entry that counts
        self._first: Sequence | None = None  # as last found, until members change

    def join(self, seq: Sequence) -> None:
        """Add `seq`, after its base is set."""
        self._first = None
        number = self._number(seq)
        entered = self._entered.get(seq)
        if entered is None or number < entered:
            self._entered[seq] = number
            heappush(self._heap, (number, seq.order, seq))

    def leave(self, seq: Sequence) -> None:
        """`seq` is no member any more; its entry is dropped when it reaches the head."""
        if seq is self._first:
            self._first = None

    def first(self) -> Sequence | None:
        """The member with the smallest key; None if there is no member."""
        if self._first is None:
            self._first = self._find_first()
        return self._first

    def _find_first(self) -> Sequence | None:
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
        self._first = None

    def _number(self, seq: Sequence) -> int:
        return seq.final_tokens - seq.base if self._by_end else -seq.base
