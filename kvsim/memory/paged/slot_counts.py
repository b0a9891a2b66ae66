"""Slots of live sequences, counted once where several hold them."""

from dataclasses import dataclass


@dataclass(slots=True)
class SlotCounts:
    """used: distinct valid slots. over: slots of last blocks that will never be filled."""

    used: int = 0
    over: int = 0
