"""A pool in the counts of the engine's log: blocks, each of one group of layers, and tokens.

    # GPU blocks: 53042                        blocks of the plan, whichever group takes them
    GPU KV cache size: 153,374 tokens          as `start_up` derives the tokens from the blocks

A pool is reported in these counts, so that the figures of a log reproduce the pool that wrote the
log.
"""

from kvsim.capacity.planning import CachePlan
from kvsim.capacity.start_up import start_up
from kvsim.layout import KVLayout
from kvsim.vllm.rules import SizingRules


def is_whole(plan: CachePlan, layout: KVLayout, block_size: int) -> bool:
    """Whether one block of the engine holds `block_size` tokens in all layers."""
    own = plan.bytes_per_block == block_size * layout.bytes_per_token
    return own and len(plan.groups) == 1 and plan.block_size == block_size


def counts_every_token(plan: CachePlan, layout: KVLayout) -> bool:
    """Whether a token that the log counts has its KV of all layers in the pool of one GPU."""
    first, shards = plan.groups[0], plan.serving.decode_context_parallel_size
    keeps_all = first.window_tokens is None and first.chunk_tokens is None
    return shards == 1 and keeps_all and is_whole(plan, layout, plan.block_size)


def blocks_that_print(plan: CachePlan, version: SizingRules, tokens: int) -> int:
    """The fewest blocks for which the engine prints at least `tokens` tokens."""
    least, most = 1, 1
    while tokens_printed(plan, version, most) < tokens:
        most *= 2
    while least < most:
        middle = (least + most) // 2
        if tokens_printed(plan, version, middle) >= tokens:
            most = middle
        else:
            least = middle + 1
    return least


def tokens_printed(plan: CachePlan, version: SizingRules, blocks: int) -> int:
    """Tokens that the engine prints for a pool of `blocks` blocks."""
    return start_up(plan, blocks, version).kv_cache_size_tokens
