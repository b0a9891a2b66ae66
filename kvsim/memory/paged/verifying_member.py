"""One sequence that verifies drafts in lockstep: its steps, which are known in advance, and their
blocks.
"""

from bisect import bisect_left, bisect_right

from kvsim.memory.verifying import Ahead


class Member:
    """The predicted steps of one sequence.

    since: clock at which it joined. slots: valid slots before each of its steps, and after the
    last. counted: slots before each step as the scheduler counts them, drafts in flight taken as
    accepted. allocations: most blocks that it may take, by clock; has an entry for each clock at
    which the member must be visited. frees: most blocks that it may free, by clock. registrations:
    clocks at which the scheduling of a step makes content known. late_registrations: clocks of
    steps that make content known when they return.
    """

    __slots__ = (
        "_ahead",
        "_lag",
        "allocations",
        "counted",
        "frees",
        "late_registrations",
        "registrations",
        "since",
        "slots",
    )

    def __init__(self, since: int, ahead: Ahead, lag: int, step_tokens: int) -> None:
        self.since, self._ahead, self._lag = since, ahead, lag
        self.slots = self.counted = ahead.slots
        if lag:
            more = lag * step_tokens
            self.counted = [ahead.counted, *[before + more for before in self.slots[:-2]]]
        self.allocations: dict[int, int] = {}
        self.frees: dict[int, int] = {}
        self.registrations: list[int] = []
        self.late_registrations: list[int] = []

    @property
    def num_steps(self) -> int:
        """Number of steps of this member."""
        return len(self.slots) - 1

    def first_counted(self, slots: int) -> int:
        """Index of the first step before which the scheduler counts more than `slots` slots."""
        return bisect_right(self.counted, slots)

    def first_returned(self, slots: int) -> int:
        """Index of the first step before which steps with `slots` slots have returned."""
        return 0 if self._ahead.returned >= slots else bisect_left(self.slots, slots) + self._lag

    def first_known(self, tokens: int) -> int:
        """Index of the first step before which `tokens` tokens have returned."""
        return 0 if self._ahead.known >= tokens else bisect_left(self.slots, tokens - 1) + self._lag

    def first_filling(self, slots: int) -> int:
        """Index of the first step after which the member has `slots` slots."""
        return bisect_left(self.slots, slots, lo=1) - 1

    @property
    def counted_beyond(self) -> int:
        """Slots that the scheduler counts before the first step in addition to the valid ones."""
        return self._ahead.counted - self.slots[0]

    def returned(self, step: int) -> int:
        """Slots of the steps that have returned when step `step` is scheduled."""
        return self.slots[step - self._lag] if step else self._ahead.returned

    def known(self, step: int) -> int:
        """Tokens that have returned when step `step` is scheduled."""
        return self.slots[step - self._lag] + 1 if step else self._ahead.known


class OptimisticSlots:
    """Slots that the scheduler counts in addition to valid ones, since drafts in flight count as
    accepted until their step returns.

    tokens: tokens of one step in flight; 0: each step returns before the next.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self._filled = 0  # slots filled by the last step of the members
        self._num_first = 0  # members without a step so far
        self._of_first = 0  # slots counted for these beyond the valid ones

    def joined(self, slots: int) -> None:
        """A member joins, with `slots` more slots counted than valid."""
        self._num_first += 1
        self._of_first += slots

    def left(self, filled: int) -> None:
        """Remove a member; its last step filled `filled` slots."""
        self._filled -= filled

    def left_first(self, slots: int) -> None:
        """A member without a step leaves, with `slots` more slots counted than valid."""
        self._num_first -= 1
        self._of_first -= slots

    def stepped(self, num: int, new_slots: int) -> int:
        """All `num` members take a step that fills `new_slots` slots in total; returns the sum of
        optimistic slots before the step.
        """
        counted = (num - self._num_first) * self.tokens - self._filled if self.tokens else 0
        counted += self._of_first
        self._filled, self._num_first, self._of_first = new_slots, 0, 0
        return counted
