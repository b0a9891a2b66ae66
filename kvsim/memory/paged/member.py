"""One of those who verify drafts in step: its steps, known in advance, and what they move."""

from bisect import bisect_left, bisect_right

from kvsim.memory.verifying import Ahead


class Member:
    """since: the clock it joined at. slots: valid before each of its steps, and after the last.
    believed: before each as the scheduler believes then.
    takes: blocks it may take, by the clocks at which anything of it moves. gives: those it may give
    back, by clocks. knows: the clocks at which it makes content known. learns: those of steps whose
    return does.
    """

    __slots__ = (
        "_ahead",
        "_lag",
        "believed",
        "gives",
        "knows",
        "learns",
        "since",
        "slots",
        "takes",
    )

    def __init__(self, since: int, ahead: Ahead, lag: int, step_tokens: int) -> None:
        self.since, self._ahead, self._lag = since, ahead, lag
        self.slots = self.believed = ahead.slots
        if lag:
            more = lag * step_tokens
            self.believed = [ahead.believed, *[before + more for before in self.slots[:-2]]]
        self.takes: dict[int, int] = {}
        self.gives: dict[int, int] = {}
        self.knows: list[int] = []
        self.learns: list[int] = []

    @property
    def num_steps(self) -> int:
        """How many it has in all."""
        return len(self.slots) - 1

    def first_believed(self, slots: int) -> int:
        """Its first step before which it is believed to have more slots than these."""
        return bisect_right(self.believed, slots)

    def first_returned(self, slots: int) -> int:
        """Its first step before which so many slots have returned."""
        return 0 if self._ahead.returned >= slots else bisect_left(self.slots, slots) + self._lag

    def first_known(self, tokens: int) -> int:
        """Its first step before which so many tokens have returned."""
        return 0 if self._ahead.known >= tokens else bisect_left(self.slots, tokens - 1) + self._lag

    def first_filling(self, slots: int) -> int:
        """Its first step after which it has so many."""
        return bisect_left(self.slots, slots, lo=1) - 1

    @property
    def believed_before(self) -> int:
        """Slots that it is believed to have before its first step, and has not."""
        return self._ahead.believed - self.slots[0]

    def returned(self, step: int) -> int:
        """Slots of steps that have returned when this one is scheduled."""
        return self.slots[step - self._lag] if step else self._ahead.returned

    def known(self, step: int) -> int:
        """Tokens that have returned then."""
        return self.slots[step - self._lag] + 1 if step else self._ahead.known


class OptimisticSlots:
    """Slots that members are believed to have before their next step, and may not: all drafts of a
    step that has not returned count. tokens: of such a step; 0: each returns before the next.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self._filled = 0  # slots that the last step of members filled
        self._num_first = 0  # members that have had none
        self._of_first = 0  # what is believed of these

    def joined(self, slots: int) -> None:
        """A member of which so many are believed."""
        self._num_first += 1
        self._of_first += slots

    def left(self, filled: int) -> None:
        """A member whose last step filled so many slots."""
        self._filled -= filled

    def left_first(self, slots: int) -> None:
        """One that has had none, of which so many were believed."""
        self._num_first -= 1
        self._of_first -= slots

    def stepped(self, num: int, new_slots: int) -> int:
        """All `num` members take a step, which fills so many slots; returns what was believed."""
        believed = (num - self._num_first) * self.tokens - self._filled if self.tokens else 0
        believed += self._of_first
        self._filled, self._num_first, self._of_first = new_slots, 0, 0
        return believed
