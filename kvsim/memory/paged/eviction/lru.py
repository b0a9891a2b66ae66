"""Least recently used first, of one sequence the end before the beginning: vLLM's order
(v1/core/kv_cache_utils.py, FreeKVCacheBlockQueue, 0.33), which is the pool's own.
"""

from typing import ClassVar

from kvsim.memory.paged.eviction.policy import Eviction, EvictionPolicy


class Lru(EvictionPolicy):
    """Least recently used: evict the content that was freed first."""

    ranks: ClassVar[bool] = False

    def build(self, num_blocks: int, block_tokens: int) -> Eviction | None:
        return None
