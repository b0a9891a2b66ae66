"""Parts of the ledger's classes that have names of their own, in bytes.

    left_behind     of overprovisioned: slots outside of their window, in an allocator that keeps
    every token in every layer (see left_behind.py)
    draft_slots     of what is held and not used: slots allocated for drafts
    in_transit      of used: nodes of a tree that copies alone hold, not requests
    kept_for_readers  of used: finished prompts held for transfer to a decode engine
    arriving        of reserved: slots of sequences with KV that is being loaded
    states          of used: recurrent states that live sequences hold
    cached_outputs  of cached: blocks of full attention outside of the prompt of their last owner
    cached_windows  of cached: blocks that only layers with a window would read
    cached_states   of cached: checkpoints, recurrent states that a hit may go on from

The other cached blocks were in the prompt of their last owner.
"""

from typing import Final

PARTS: tuple[str, ...] = (
    *("left_behind", "draft_slots", "states"),
    *("cached_outputs", "cached_windows", "cached_states"),
    *("kept_for_readers", "arriving", "in_transit"),
)
# Indices of these parts.
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

# The change of a part, like that of a class in `Course`: its index, and its jumps J_i at steps t_i
# summed with weights 1, t_i and t_i * (t_i - 1) / 2.
PartMove = tuple[int, int, int, int]


def bytes_by_name(parts: Parts) -> dict[str, int]:
    """Bytes of every part by name, 0 for absent parts."""
    return dict.fromkeys(PARTS, 0) | {PARTS[place]: held for place, held in parts}
