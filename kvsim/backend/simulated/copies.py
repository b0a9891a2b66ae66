"""Copies between slots, in an order that loses nothing."""

from kvsim.backend.step import Copy
from kvsim.plumbing.errors import InvariantError


def in_order(copies: list[Copy]) -> tuple[Copy, ...]:
    """Copies in an order in which none overwrites what another still has to read.

    There is one: the simulator made them one after the other, each into memory that was free.
    """
    left, ordered = list(copies), []
    while left:
        for copy in left:
            others = [other for other in left if other is not copy]
            if not any(_overlap(copy, other) for other in others):
                break
        else:
            raise InvariantError(f"copies that overwrite each other: {left}")
        left.remove(copy)
        ordered.append(copy)
    return tuple(ordered)


def _overlap(copy: Copy, other: Copy) -> bool:
    """Whether `copy` writes slots that `other` reads."""
    return copy.target < other.source + other.slots and other.source < copy.target + copy.slots
