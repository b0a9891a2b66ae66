"""Tables of cached recurrent states.

States lie in blocks at positions as keys and values do: the block that ends at n tokens holds the
state after n tokens. A sequence continues from its last state, which acts as a window of two
tokens. A step that computes several blocks leaves a state only at its end, so the positions between
are null. The running state is followed by the scratch states, on which drafts are verified.
"""

from collections.abc import Sequence

from kvsim.memory.paged.blocks import Extent, Part, Table


def grown_states(
    table: Table,
    parts: list[Part],
    dealt: Sequence[Extent],
    states: int,
    scratch: int,
    *,
    checkpoint: bool,
) -> None:
    """Grow `parts`, the table of states of one layer group, to `states` positions with newly taken
    blocks.

    Scratch states of a long step move to the new end.
    """
    before, running = table.states, states - scratch - 1 - checkpoint
    end = max(before, running)
    if table.begun and scratch:
        moved = [part for part in parts if before - scratch <= part[0] < min(before, running)]
        for part in moved:
            parts.remove(part)
        parts.extend((end + index, part[1], 1) for index, part in enumerate(moved))
        parts.sort(key=lambda part: part[0])
        end += len(moved)
    parts.extend((end + index, extent, 1) for index, extent in enumerate(dealt))


def retired_states(table: Table, g: int, end: int) -> list[list[Part]]:
    """Remove the states that some engine versions free once positions before `end` are outside of
    the window.

    Removed are the last states up to a gap, and the state of the previous allocation.
    """
    parts, before = table.parts[g], table.last_state
    held = {place for place, _, _ in parts}
    start = end
    while start > table.skipped[g] and start - 1 in held:
        start -= 1
    gone = [
        [part for part in parts if start <= part[0] < end],
        [part for part in parts if part[0] == before < start],
    ]
    parts[:] = [part for part in parts if not (part[0] == before < end or start <= part[0] < end)]
    table.skipped[g] = min(end, parts[0][0]) if parts else end
    return gone
