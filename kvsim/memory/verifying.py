"""The interface between an allocator and sequences that verify drafts in lockstep."""

from typing import NamedTuple, Protocol

from kvsim.sequence import Sequence


class Ahead(NamedTuple):
    """All steps of a sequence, known before the first step.

    slots: valid slots before each step, and after the last. counted, returned, known: when the
    first step is scheduled, slots that the scheduler counts, slots of returned steps, and returned
    tokens.
    """

    slots: list[int]
    counted: int
    returned: int
    known: int


class Verifying(Protocol):
    """Block tables of members, sequences that each compute one token and all its drafts in every
    step.

    A call does for all members at once what `Allocator.verify` and `checkpoint` do for one.
    """

    def join(self, seq: Sequence, ahead: Ahead) -> None:
        """Make `seq`, which has memory and is not decoding otherwise, a member from the next step
        on.
        """
        ...

    def leave(self, seq: Sequence) -> None:
        """Remove the member `seq`, which keeps its memory."""
        ...

    def due(self) -> list[Sequence]:
        """Members that take blocks or register content in the next step, in `order`."""
        ...

    def take(self, seq: Sequence) -> bool:
        """Allocate the blocks of one of the `due` members for the next step; False: no room,
        nothing changed.
        """
        ...

    def advance(self, new_slots: int) -> None:
        """Process the members that are `due`, and count the scheduled step, which fills `new_slots`
        slots.
        """
        ...

    def step_returned(self) -> list[Sequence]:
        """The oldest step in flight has returned; returns the members with newly known content, in
        `order`.
        """
        ...

    def returned(self, seq: Sequence) -> None:
        """Register the blocks of a member that `step_returned` has listed."""
        ...

    def steps_that_fit(self, limit: int) -> int:
        """Number of steps for which the blocks suffice, at most `limit`."""
        ...

    def steps_head_stays_blocked(self, head: Sequence, limit: int) -> int:
        """Number of steps, at most `limit`, in which decoding cannot make the blocked `head` easier
        to admit.
        """
        ...
