"""Slots of live sequences, counted once where several hold them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class SlotCounts:
    """used: distinct valid slots. over: slots of last blocks that will never be filled. drafts: of
    those not valid, the ones that drafts were, or may be, written to.
    """

    used: int = 0
    over: int = 0
    drafts: int = 0

    def grow(self, final_tokens: int, before: int, after: int, block_size: int) -> None:
        """A sequence that will hold so many slots had `before` blocks and has `after`."""
        if after * block_size > final_tokens:
            self.over += after * block_size - max(final_tokens, before * block_size)


def distinct_slots(tables: Iterable[tuple[Sequence[int], int]], block_size: int) -> int:
    """Valid slots of block tables with so many each, those of a shared block once. Slow."""
    valid: dict[int, int] = {}
    for blocks, slots in tables:
        for index, block in enumerate(blocks):
            here = min(block_size, slots - index * block_size)
            valid[block] = max(here, valid.get(block, 0))
    return sum(valid.values())
