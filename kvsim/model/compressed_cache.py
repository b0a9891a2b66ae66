"""The KV caches of DeepSeek-V4's attention, with block sizes that do not depend on block_size.

By vLLM 0.33.0 (models/deepseek_v4/attention.py and compressor.py,
v1/attention/backends/mla/sparse_swa.py). In fp8 a row has 584 bytes (448 unrotated elements, 64
rotated ones in 16 bits, 8 of scales) on pages of whole 576 bytes. In 16 bits pages are of whole
512. The compressor's unfinished groups of tokens are kept in float32, keys and scores.
"""

from typing import NamedTuple

from kvsim.layout import OwnBlock, Reading
from kvsim.model.layers import CompressedAttention
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div

BLOCK_TOKENS, WINDOW_BLOCK_TOKENS = 256, 64
STATE_BLOCK_TOKENS = {4: 4, 128: 8}
ROTATED_BYTES, SCALED_ELEMENTS, INDEX_SCALE_BYTES = 2, 64, 4
PACKED_PAGE, PLAIN_PAGE = 576, 512
PACKED = ("auto", "fp8", "fp8_e4m3", "fp8_ds_mla")
PLAIN = ("bf16", "bfloat16")


class CompressedCaches(NamedTuple):
    """The caches of one layer.

    window: keys of the newest tokens. compressed: caches of all tokens, several as one entry: the
    keys, and an indexer's keys; readings: how each of these is read. states: of the held_tokens
    newest tokens, not compressed yet.
    """

    window: OwnBlock
    compressed: tuple[OwnBlock, ...] = ()
    states: tuple[OwnBlock, ...] = ()
    held_tokens: int = 0
    readings: tuple[Reading, ...] = ()


def compressed_caches(mixer: CompressedAttention, kv_cache_dtype: str) -> CompressedCaches:
    """The caches of one layer with their block sizes; InputError for a dtype in which no engine
    serves them.
    """
    packed = kv_cache_dtype in PACKED
    if not packed and kv_cache_dtype not in PLAIN:
        raise InputError(
            "attention over compressed tokens is not kept in it",
            where="kv_cache_dtype",
            value=kv_cache_dtype,
            limit=", ".join([*PACKED, *PLAIN]),
        )
    row = _row_bytes(mixer) if packed else 2 * mixer.head_dim
    page = PACKED_PAGE if packed else PLAIN_PAGE

    def block(tokens: int, num_bytes: int) -> OwnBlock:
        return OwnBlock(tokens, page * ceil_div(num_bytes, page))

    window = block(WINDOW_BLOCK_TOKENS, WINDOW_BLOCK_TOKENS * row)
    ratio = mixer.compress_ratio
    if not ratio:
        return CompressedCaches(window)
    rows = BLOCK_TOKENS // ratio
    compressed, state_tokens = [block(BLOCK_TOKENS, rows * row)], STATE_BLOCK_TOKENS[ratio]
    widths, readings = [mixer.head_dim], [Reading(None, mixer.decode_flops_per_pair() // ratio)]
    if mixer.has_indexer:
        key = mixer.index_head_dim + INDEX_SCALE_BYTES
        compressed.append(block(BLOCK_TOKENS, rows * key))
        widths.append(mixer.index_head_dim)
        picked = None if mixer.index_topk is None else ratio * mixer.index_topk
        readings = [readings[0]._replace(tokens=picked)]
        scored = 2 * mixer.index_heads * mixer.index_head_dim
        readings.append(Reading(None, scored // ratio))
    states = [block(state_tokens, state_tokens * 8 * mixer.streams * width) for width in widths]
    held_tokens = mixer.streams * ratio
    return CompressedCaches(window, tuple(compressed), tuple(states), held_tokens, tuple(readings))


def _row_bytes(mixer: CompressedAttention) -> int:
    unrotated = mixer.head_dim - mixer.rope_head_dim
    scales = ceil_div(unrotated, SCALED_ELEMENTS) + 1  # and one of padding
    return unrotated + ROTATED_BYTES * mixer.rope_head_dim + scales
