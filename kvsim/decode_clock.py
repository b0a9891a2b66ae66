"""The decode clock: all decoding sequences advance together, and none of them is touched."""

from kvsim.sequence import Sequence


class DecodeClock:
    """The decode steps of one engine so far.

    A sequence that joined at step j with n slots has n - j + steps of them; its `base` is n - j.
    """

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    def join(self, seq: Sequence, num_tokens: int) -> int:
        """`seq`, with num_tokens valid slots, decodes from the next step on; returns its base."""
        base = seq.base = num_tokens - self.steps
        return base

    def slots(self, seq: Sequence) -> int:
        """Slots of a decoding sequence, those of the step being scheduled included."""
        return seq.base + self.steps
