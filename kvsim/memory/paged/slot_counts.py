"""Slots of live sequences, counted once where several hold them."""

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
