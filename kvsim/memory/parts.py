"""Parts of the ledger's classes that have names of their own, in bytes.

    left_behind     of overprovisioned: valid once, and of use to nobody since a window slid past
                    where every layer keeps every token (see left_behind.py)
    draft_slots     of what is held and not used: what drafts may be, or were, written to
    in_transit      of used: nodes of a tree that copies alone hold, not requests
    kept_for_readers  of used: finished prompts that a decode engine has not read yet
    arriving        of reserved: slots of sequences whose content is on its way from elsewhere
    states          of used: recurrent states that live sequences hold
    cached_outputs  of cached: blocks of full attention that do not lie in the prompt of who held
                    them last
    cached_windows  of cached: blocks that only layers with a window would read
    cached_states   of cached: checkpoints, recurrent states that a hit may go on from

What is cached beside these are blocks that lay in the prompt of who held them last.
"""

from typing import Final

PARTS: tuple[str, ...] = (
    *("left_behind", "draft_slots", "states"),
    *("cached_outputs", "cached_windows", "cached_states"),
    *("kept_for_readers", "arriving", "in_transit"),
)
# Their places among these.
LEFT_BEHIND: Final = 0
DRAFT_SLOTS: Final = 1
STATES: Final = 2
CACHED_OUTPUTS: Final = 3
CACHED_WINDOWS: Final = 4
CACHED_STATES: Final = 5
KEPT_FOR_READERS: Final = 6
ARRIVING: Final = 7
IN_TRANSIT: Final = 8

# Of the ledger at one instant: (place, bytes) of the parts that are there.
Parts = tuple[tuple[int, int], ...]
NO_PARTS: Parts = ()

# How a part moved, as a `Course` tells of a class: its place, and its jumps J_i at steps t_i summed
# with weights 1, t_i and t_i * (t_i - 1) / 2.
PartMove = tuple[int, int, int, int]


def bytes_by_name(parts: Parts) -> dict[str, int]:
    """Of every part, 0 for those that are not there."""
    return dict.fromkeys(PARTS, 0) | {PARTS[place]: held for place, held in parts}
