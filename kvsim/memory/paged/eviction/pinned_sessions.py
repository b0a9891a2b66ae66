"""Conversations keep their content between requests: content of a session is evicted after all
other content, up to a share of the pool.

A client may name a session in a header or a cache key of the API. Whether the session goes on is
unknown, so beyond the share the sessions without requests for longest lose their pin.
"""

from collections.abc import Sequence

from pydantic import Field

from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.memory.paged.eviction.two_queues import TwoQueues
from kvsim.memory.paged.session_hint import SessionHint


class PinnedSessions(EvictionPolicy):
    """Pin content of sessions. pinned: largest share of the pool's blocks for pinned content."""

    pinned: float = Field(0.5, gt=0, le=1)

    def build(self, num_blocks: int, block_tokens: int) -> "Pins":
        return Pins(int(self.pinned * num_blocks))


class Pins(TwoQueues):
    """Spares content that its last user used as part of a session."""

    def __init__(self, most_spared: int) -> None:
        super().__init__(most_spared)
        self._pinned: set[int] = set()

    def returning(self, blocks: Sequence[int], places: Sequence[int], *, hint: SessionHint) -> None:
        if hint.session is not None:
            self._pinned.update(blocks)
        else:
            self._pinned.difference_update(blocks)

    def forgotten(self, block: int, key: int | None) -> None:
        self._pinned.discard(block)

    def _is_spared(self, block: int) -> bool:
        return block in self._pinned

    def _demoted(self, block: int) -> None:
        self._pinned.discard(block)
