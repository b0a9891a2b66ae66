"""Segmented LRU: content that was hit is protected from content used once.

Source: Karedla, Love and Wherry, "Caching strategies to improve disk system performance", IEEE
Computer 27(3), 1994.
"""

from pydantic import Field

from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.memory.paged.eviction.two_queues import TwoQueues


class Slru(EvictionPolicy):
    """Segmented LRU. protected: share of the pool's blocks for content that was hit at least once.
    Content beyond this share moves back to the probationary segment.
    """

    protected: float = Field(0.8, gt=0, lt=1)

    def build(self, num_blocks: int, block_tokens: int) -> "Segments":
        return Segments(int(self.protected * num_blocks))


class Segments(TwoQueues):
    """Evicts the probationary segment first: content without a hit since it was written or left the
    protected segment.
    """

    def __init__(self, most_spared: int) -> None:
        super().__init__(most_spared)
        self._found: set[int] = set()

    def found(self, block: int) -> None:
        self._found.add(block)

    def forgotten(self, block: int, key: int | None) -> None:
        self._found.discard(block)

    def _is_spared(self, block: int) -> bool:
        return block in self._found

    def _demoted(self, block: int) -> None:
        self._found.discard(block)
