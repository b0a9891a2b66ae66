"""The interface between an allocator and sequences that verify drafts in lockstep."""

from typing import NamedTuple, Protocol

from kvsim.sequence import Sequence


class Ahead(NamedTuple):
    """The steps of a sequence, as known before the first of them.

    slots: valid slots before each step, and after the last. counted, returned, known: when the
    first step is scheduled, slots that the scheduler counts, slots of returned steps, and returned
    tokens.
    """

    slots: list[int]
    counted: int
    returned: int
    known: int


class Verifying(Protocol):
    """Tables of members, each of which computes one token and all its drafts a step.

    The calls do for all members at once what `Allocator.verify` and `checkpoint` do for one.
    """

    def join(self, seq: Sequence, ahead: Ahead) -> None:
        """`seq`, live and not decoding otherwise, is a member from the next step on."""
        ...

    def leave(self, seq: Sequence) -> None:
        """`seq` is no member any more and keeps its memory."""
        ...

    def due(self) -> list[Sequence]:
        """Members that take blocks or register content in the next step, in `order`."""
        ...

    def take(self, seq: Sequence) -> bool:
        """The turn of one of `due` in the next step; False: no room, nothing changed."""
        ...

    def advance(self, new_slots: int) -> None:
        """Process the members that are `due`, and count the scheduled step, which fills `new_slots`
        slots.
        """
        ...

    def step_returned(self) -> list[Sequence]:
        """The oldest step in flight returned; returns members with content known by it, in
        `order`.
        """
        ...

    def returned(self, seq: Sequence) -> None:
        """Process the returned step of one of these members."""
        ...

    def steps_that_fit(self, limit: int) -> int:
        """Number of steps for which the blocks suffice, at most `limit`."""
        ...

    def steps_head_stays_blocked(self, head: Sequence, limit: int) -> int:
        """Number of steps, at most `limit`, that cannot make `head`, which could not start, easier
        to admit.
        """
        ...
