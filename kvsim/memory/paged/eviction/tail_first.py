"""Tail first: the block farthest from the beginning of its prompt is evicted first, regardless of
its last use.

Prompts share their beginnings. vLLM's design of prefix caching (its issue 2614) asked for the
length of the prefix among blocks used at the same time. Here it comes before time.
"""

from collections.abc import Sequence

from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.memory.paged.eviction.ranked import Ranked
from kvsim.memory.paged.session_hint import SessionHint


class TailFirst(EvictionPolicy):
    """The block farthest from the beginning is evicted first; of equal ones the least recent."""

    def build(self, num_blocks: int, block_tokens: int) -> "DeepestFirst":
        return DeepestFirst()


class DeepestFirst(Ranked):
    """Free blocks ranked by position in the block table, the highest evicted first."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[int, int] = {}

    def returning(self, blocks: Sequence[int], places: Sequence[int], *, hint: SessionHint) -> None:
        self._places.update(zip(blocks, places, strict=True))

    def _rank(self, block: int) -> int:
        return -self._places[block]
