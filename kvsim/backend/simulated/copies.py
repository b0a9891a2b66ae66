"""Order copies between slots so that no copy overwrites unread slots."""

from kvsim.backend.step import Copy
from kvsim.plumbing.errors import InvariantError


def in_order(copies: list[Copy]) -> tuple[Copy, ...]:
    """The copies in an order in which none overwrites slots that a later one reads.

    Such an order exists: the simulator made the copies one by one, each into free memory.
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
