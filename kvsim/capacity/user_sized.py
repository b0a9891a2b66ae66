"""A KV pool of a size set by the user, in bytes, tokens or blocks."""

from kvsim.capacity.engine_counts import blocks_that_print, counts_every_token
from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.planning import CachePlan
from kvsim.layout import KVLayout
from kvsim.plumbing.errors import InputError

MOST_BYTES = 1 << 60  # an exbibyte; the tables hold 63 bits


def user_sized_pool(
    memory: MemoryOptions, layout: KVLayout, plan: CachePlan, block_size: int, *, as_logged: bool
) -> tuple[str, int]:
    """The option that sizes the pool, and the pool's bytes: 0 where gpu_memory_utilization does.

    as_logged: blocks and tokens are those of the engine's log; else they lie in all layers, and a
    block has `block_size` tokens.
    """
    token_bytes = layout.bytes_per_token
    if memory.kv_cache_bytes is not None:
        return "kv_cache_bytes", memory.kv_cache_bytes
    if memory.num_gpu_blocks is not None:
        block_bytes = plan.bytes_per_block if as_logged else block_size * token_bytes
        block_bytes = _grows("num_gpu_blocks", memory, block_bytes)
        return "num_gpu_blocks", memory.num_gpu_blocks * block_bytes
    tokens = memory.kv_cache_tokens
    if tokens is None:
        return "gpu_memory_utilization", 0
    if as_logged and not counts_every_token(plan, layout):
        blocks = blocks_that_print(plan, memory.version.sizing, tokens)
        return "kv_cache_tokens", blocks * plan.bytes_per_block
    return "kv_cache_tokens", tokens * _grows("kv_cache_tokens", memory, token_bytes)


def _grows(way: str, memory: MemoryOptions, unit_bytes: int) -> int:
    if not unit_bytes:
        raise InputError(
            "states do not grow with tokens",
            where=f"memory.{way}",
            value=getattr(memory, way),
            remedy="give kv_cache_bytes",
        )
    return unit_bytes


def check_capacity(capacity: int, block_size: int, block_bytes: int, sized_by: str) -> None:
    """Raise InputError for a pool smaller than one block or larger than MOST_BYTES."""
    if capacity < block_bytes:
        raise InputError(
            "the pool holds less than one block",
            where="allocator.block_size",
            value=f"{block_size:,} tokens",
            limit=f"{capacity * block_size // block_bytes:,} tokens ({sized_by})",
            remedy="lower the block size, or give the pool more memory",
        )
    if capacity > MOST_BYTES:
        raise InputError(
            "the pool is larger than any memory",
            where=f"memory.{sized_by}",
            value=f"{capacity:,} bytes",
            limit=f"{MOST_BYTES:,} bytes",
        )
