"""Slots that sequences are believed to have while a step of theirs has not returned."""


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
