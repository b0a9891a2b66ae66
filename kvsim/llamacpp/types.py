"""Data types of K and V in llama.cpp (`-ctk`, `-ctv`), and their bytes."""

from typing import Literal, get_args

from kvsim.plumbing.errors import InputError

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
TYPES: tuple[CacheType, ...] = get_args(CacheType)
# Elements in a block, and its bytes (ggml-common.h).
_BLOCKS: dict[str, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}


def is_quantized(cache_type: CacheType) -> bool:
    """Whether the type stores several elements in one block."""
    return _BLOCKS[cache_type][0] > 1


def row_bytes(cache_type: CacheType, elements: int, where: str = "cache_type") -> int:
    """Bytes of one token's `elements` elements in one layer; InputError if they do not fill whole
    blocks.
    """
    block, num_bytes = _BLOCKS[cache_type]
    if elements % block:
        raise InputError(
            f"{elements} elements of a token do not fill whole blocks of {cache_type}",
            where=where,
            value=cache_type,
            limit=f"multiples of {block}",
            remedy="take f16",
        )
    return elements // block * num_bytes
