"""The two lines with which the engine ends its start-up, as its version defines them.

    GPU KV cache size: 1,277,184 tokens
    Maximum concurrency for 8,192 tokens per request: 155.75x

The concurrency is the blocks over those that one request of max_model_len tokens can hold. The
tokens are, since 0.21, that concurrency times max_model_len; before, the blocks of one group times
its tokens.
"""

from typing import NamedTuple

from kvsim.capacity.engine_version import EngineVersion
from kvsim.capacity.planning import CachePlan


class StartUp(NamedTuple):
    """num_gpu_blocks: of the plan. block_size: that the engine sets. kv_cache_size_tokens,
    max_concurrency: what it prints for max_model_len tokens a request.
    """

    num_gpu_blocks: int
    block_size: int
    kv_cache_size_tokens: int
    max_concurrency: float
    max_model_len: int

    def lines(self) -> tuple[str, str]:
        """As the engine prints them."""
        return (
            f"GPU KV cache size: {self.kv_cache_size_tokens:,} tokens",
            f"Maximum concurrency for {self.max_model_len:,} tokens per request: "
            f"{self.max_concurrency:.2f}x",
        )


def start_up(plan: CachePlan, num_blocks: int, version: EngineVersion) -> StartUp:
    """What an engine of this version says of so many blocks."""
    longest = plan.serving.max_model_len
    concurrency = num_blocks / plan.blocks_of(longest)
    if version.tokens_by_concurrency:
        tokens = int(concurrency * longest)
    else:
        shards = plan.serving.decode_context_parallel_size
        tokens = num_blocks // len(plan.groups) * plan.block_size * shards
    return StartUp(num_blocks, plan.block_size, tokens, concurrency, longest)
