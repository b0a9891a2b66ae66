"""Groups of layers whose tables hold blocks at the same positions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from kvsim.vllm.grouping import BlockGroup


@dataclass(frozen=True, slots=True)
class GroupsOfOneShape:
    """Groups that take and give together.

    window_tokens: how far they look back, None: all. span: units in a block. states: they hold
    recurrent states. pad_bytes, state_bytes: of a block of each; slot_bytes: of a slot of each.
    """

    members: list[int]
    window_tokens: int | None
    block_size: int
    span: int
    states: bool
    pad_bytes: int
    state_bytes: int
    slot_bytes: int

    @property
    def num(self) -> int:
        """How many groups."""
        return len(self.members)


def shapes_of(
    groups: Sequence[BlockGroup],
    placed: Sequence[int],
    windows: Sequence[int | None],
    unit: int,
    pads: Sequence[int],
) -> list[GroupsOfOneShape]:
    """The groups whose tables have positions, neighbours of one shape together. windows: how many
    tokens back each group looks. pads: padding of a block of each, in bytes.
    """

    def shape(g: int) -> tuple[int | None, int, bool]:
        return windows[g], groups[g].block_size, groups[g].state_bytes > 0

    found = []
    for (window, size, states), neighbours in groupby(placed, key=shape):
        members = list(neighbours)
        found.append(
            GroupsOfOneShape(
                members,
                window,
                size,
                size // unit,
                states,
                sum(pads[g] for g in members),
                sum(groups[g].state_bytes for g in members),
                sum(groups[g].slot_bytes for g in members),
            )
        )
    return found
