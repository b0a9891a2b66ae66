"""What the engine says of its KV cache at its start, as its version defines it: a warning for each
kind of layers with a last group that is not full, and two lines at the end.

    Add 8 padding layers, may waste at most 15.38% KV cache memory
    GPU KV cache size: 1,277,184 tokens
    Maximum concurrency for 8,192 tokens per request: 155.75x

The concurrency is the blocks over those that one request of max_model_len tokens can hold; where
not even one fits beside the null block, the engine refuses to start instead. The tokens are, since
0.21, that concurrency times max_model_len; before, the blocks of one group times its tokens.
"""

from typing import NamedTuple

from kvsim.capacity.planning import CachePlan
from kvsim.vllm.rules import SizingRules


class StartUp(NamedTuple):
    """What the engine logs of its KV cache.

    num_gpu_blocks: blocks of the plan. block_size: tokens in a block, as the engine sets it.
    kv_cache_size_tokens, max_concurrency: as logged for requests of max_model_len tokens.
    longest_tokens: tokens of the longest request that fits alone; an engine with fewer than
        max_model_len does not start. padding: (padding layers, layers) as warned of.
    """

    num_gpu_blocks: int
    block_size: int
    kv_cache_size_tokens: int
    max_concurrency: float
    max_model_len: int
    longest_tokens: int
    padding: tuple[tuple[int, int], ...] = ()

    @property
    def starts(self) -> bool:
        """Whether one request of max_model_len tokens fits."""
        return self.longest_tokens >= self.max_model_len

    def lines(self) -> tuple[str, ...]:
        """As the engine prints them, or the refusal behind its warnings."""
        warnings = tuple(
            f"Add {padding} padding layers, may waste at most {padding / layers * 100:.2f}% KV "
            "cache memory"
            for padding, layers in self.padding
        )
        if not self.starts:
            return (
                *warnings,
                f"refused to start: {self.max_model_len:,} tokens do not fit; estimated maximum "
                f"model length {self.longest_tokens:,}",
            )
        return (
            *warnings,
            f"GPU KV cache size: {self.kv_cache_size_tokens:,} tokens",
            f"Maximum concurrency for {self.max_model_len:,} tokens per request: "
            f"{self.max_concurrency:.2f}x",
        )


def start_up(plan: CachePlan, num_blocks: int, version: SizingRules) -> StartUp:
    """The log of an engine of this version with `num_blocks` blocks."""
    longest = plan.serving.max_model_len
    concurrency = num_blocks / plan.printed_blocks_of(longest)
    if version.tokens_by_concurrency:
        tokens = int(concurrency * longest)
    else:
        shards = plan.serving.decode_context_parallel_size
        tokens = num_blocks // len(plan.groups) * plan.block_size * shards
    fits = _longest(plan, num_blocks - 1)
    return StartUp(num_blocks, plan.block_size, tokens, concurrency, longest, fits)


def _longest(plan: CachePlan, blocks: int) -> int:
    """Tokens of the longest request that fits in `blocks`, at most max_model_len; 0: none fits."""
    least, most = 0, plan.serving.max_model_len
    while least < most:
        middle = (least + most + 1) // 2
        if plan.blocks_of(middle) <= blocks:
            least = middle
        else:
            most = middle - 1
    return least
