"""Tokens in a block: the default, or what makes an attention page as large as a state.

In a model with recurrent layers every block holds either tokens or one state, so a block of an
attention layer must be no smaller than a state:

    B = g * ceil(state / (g * bytes of a token in one attention layer))

where g is the kernel's granularity: 16 tokens, what --block-size asks for, or 128 with MLA; where
states are exported in the middle of a chunk, a multiple of 64 as well.
"""

from collections.abc import Sequence
from math import lcm

from kvsim.capacity.planning.serving import Serving
from kvsim.model.kv_cache import LayerCache
from kvsim.plumbing.units import ceil_div

DEFAULT_BLOCK_SIZE = 16
MLA_GRANULARITY = 128
SPARSE_MLA_BLOCK_SIZE = 64
EXPORT_GRANULARITY = 64


def kernel_block_size(caches: Sequence[LayerCache], serving: Serving) -> int:
    """Tokens in a block before states are looked at."""
    if serving.block_size is not None:
        return serving.block_size
    sparse = any(cache.index_bytes for cache in caches)
    return SPARSE_MLA_BLOCK_SIZE if sparse else DEFAULT_BLOCK_SIZE


def attention_block_size(caches: Sequence[LayerCache], serving: Serving) -> int:
    """Tokens in a block of an attention layer."""
    size = kernel_block_size(caches, serving)
    token = max((cache.bytes_per_token for cache in caches), default=0)
    state = max((state_bytes(cache, serving) for cache in caches), default=0)
    if not state or not token:
        return size
    granularity = size
    if any(cache.kind == "mla" for cache in caches):
        granularity = max(granularity, MLA_GRANULARITY)
    if serving.enable_prefix_caching and serving.exports_states:
        granularity = lcm(granularity, EXPORT_GRANULARITY)
    return max(size, granularity * ceil_div(state, granularity * token))


def state_bytes(cache: LayerCache, serving: Serving) -> int:
    """Bytes of one layer's state, widened by the tokens drafted ahead; 0 without one."""
    if not cache.state_bytes:
        return 0
    return cache.state_bytes + serving.drafted_tokens * cache.drafted_bytes
