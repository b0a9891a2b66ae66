"""What an allocator promises for sequences that verify drafts in step with each other."""

from typing import NamedTuple, Protocol

from kvsim.sequence import Sequence


class Ahead(NamedTuple):
    """What is known of a sequence's steps before the first of them.

    slots: valid before each, and after the last. believed, returned, known: when the first is
    scheduled, its slots as the scheduler believes, those of steps that have returned, and its
    tokens that have.
    """

    slots: list[int]
    believed: int
    returned: int
    known: int


class Verifying(Protocol):
    """Tables of members, each of which computes one token and all its drafts a step.

    What `Allocator.verify` and `checkpoint` do to each of them one by one, told once for all.
    """

    def join(self, seq: Sequence, ahead: Ahead) -> None:
        """`seq`, which lives and does not decode otherwise, is a member from the next step on."""
        ...

    def leave(self, seq: Sequence) -> None:
        """It is no member any more and keeps its memory."""
        ...

    def movers(self) -> list[Sequence]:
        """Who takes blocks in the next step, or makes content known, in `order`."""
        ...

    def take(self, seq: Sequence) -> bool:
        """One of these has its turn in the next step; False: no room, nothing changed."""
        ...

    def advance(self, new_slots: int) -> None:
        """All movers have had their turn: the step is scheduled, which fills so many slots."""
        ...

    def step_returned(self) -> list[Sequence]:
        """The oldest step that had not returned has: whose content that makes known, in `order`."""
        ...

    def returned(self, seq: Sequence) -> None:
        """That step of one of these has returned."""
        ...

    def steps_that_fit(self, limit: int) -> int:
        """For how many steps everybody who takes blocks finds them, at most `limit`."""
        ...

    def steps_head_stays_blocked(self, head: Sequence, limit: int) -> int:
        """For how many steps nothing can make the head of the queue, which could not start, easier
        to admit, at most `limit`.
        """
        ...
