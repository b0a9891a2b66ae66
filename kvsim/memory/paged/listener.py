"""What a pool of blocks tells whoever writes down which block is whose."""

from collections.abc import Sequence
from typing import Protocol


class Listener(Protocol):
    """Hears which blocks change hands; of further owners of a block in use it does not hear."""

    def taken(self, blocks: Sequence[int]) -> None:
        """These were free, and are somebody's with nothing in them."""

    def revived(self, blocks: Sequence[int]) -> None:
        """These were free, and are somebody's with the content they had kept."""

    def freed(self, cached: Sequence[int], blank: Sequence[int]) -> None:
        """The last owner of these has gone; the first ones keep their content for now."""
