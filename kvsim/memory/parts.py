"""Parts of the ledger's classes that have names of their own, in bytes.

    left_behind     of overprovisioned: valid once, and of use to nobody since a window slid past
                    where every layer keeps every token (see left_behind.py)
    draft_slots     of what is held and not used: what drafts may be, or were, written to
    states          of used: recurrent states that live sequences hold
    cached_outputs  of cached: blocks of full attention that do not lie in the prompt of who held
                    them last
    cached_windows  of cached: blocks that only layers with a window would read
    cached_states   of cached: checkpoints, recurrent states that a hit may go on from

What is cached beside these are blocks that lay in the prompt of who held them last.
"""

from typing import Final, NamedTuple


class Parts(NamedTuple):
    """Of the ledger at one instant, in bytes; 0 where an allocator has no such thing."""

    left_behind: int = 0
    draft_slots: int = 0
    states: int = 0
    cached_outputs: int = 0
    cached_windows: int = 0
    cached_states: int = 0


PARTS: tuple[str, ...] = Parts._fields
NO_PARTS = Parts()


def parts_of(values: tuple[int, ...]) -> Parts:
    """The parts of these bytes, in their order, for where many are made: see `usage_of`."""
    return tuple.__new__(Parts, values)


# The places of parts among the others.
LEFT_BEHIND: Final = 0
STATES: Final = 2
CACHED_OUTPUTS: Final = 3
CACHED_WINDOWS: Final = 4
CACHED_STATES: Final = 5

# How a part moved, as a `Course` tells of a class: its place, and its jumps J_i at steps t_i summed
# with weights 1, t_i and t_i * (t_i - 1) / 2.
PartMove = tuple[int, int, int, int]
