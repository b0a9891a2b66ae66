"""A KV pool whose size the user gives, in bytes, tokens or blocks."""

from kvsim.capacity.options import MemoryOptions
from kvsim.layout import KVLayout
from kvsim.plumbing.errors import InputError

MOST_BYTES = 1 << 60  # an exbibyte; the tables hold 63 bits


def check_packed(memory: MemoryOptions) -> None:
    """Raise InputError for a pool in tokens of a model whose caches have blocks of own sizes."""
    if memory.kv_cache_tokens is not None:
        raise InputError(
            "a token costs less the longer its sequence is",
            where="memory.kv_cache_tokens",
            value=memory.kv_cache_tokens,
            remedy="give kv_cache_bytes or num_gpu_blocks",
        )


def user_sized_pool(memory: MemoryOptions, layout: KVLayout, block_bytes: int) -> tuple[str, int]:
    """The option that sizes the pool, and the pool's bytes: 0 where gpu_memory_utilization does.

    block_bytes: bytes of one of the allocator's blocks.
    """
    token_bytes = layout.bytes_per_token
    ways = {
        "kv_cache_bytes": memory.kv_cache_bytes,
        "kv_cache_tokens": memory.kv_cache_tokens,
        "num_gpu_blocks": memory.num_gpu_blocks,
    }
    units = {"kv_cache_bytes": 1, "kv_cache_tokens": token_bytes}
    for way, value in ways.items():
        if value is not None:
            unit = units.get(way, block_bytes)
            if not unit:
                raise InputError(
                    "states do not grow with tokens",
                    where=f"memory.{way}",
                    value=value,
                    remedy="give kv_cache_bytes",
                )
            return way, value * unit
    return "gpu_memory_utilization", 0


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
