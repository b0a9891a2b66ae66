"""Content of less urgent requests is evicted first (vLLM's issue 37168), by their priority in the
queue; within a priority the least recently used.
"""

from collections.abc import Sequence
from typing import ClassVar

from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.memory.paged.eviction.ranked import Ranked
from kvsim.memory.paged.session_hint import SessionHint


class Priorities(EvictionPolicy):
    """Evict content of less urgent requests first; content is as urgent as the most urgent request
    that used it.
    """

    by_priority: ClassVar[bool] = True

    def build(self, num_blocks: int, block_tokens: int) -> "ByPriority":
        return ByPriority()


class ByPriority(Ranked):
    """Free blocks ranked by urgency; a lower priority number is more urgent and is evicted
    later.
    """

    def __init__(self) -> None:
        super().__init__()
        self._priorities: dict[int, int] = {}

    def returning(self, blocks: Sequence[int], places: Sequence[int], *, hint: SessionHint) -> None:
        for block in blocks:
            known = self._priorities.get(block, hint.priority)
            self._priorities[block] = min(known, hint.priority)

    def _rank(self, block: int) -> int:
        return -self._priorities[block]

    def forgotten(self, block: int, key: int | None) -> None:
        self._priorities.pop(block, None)
