"""The KV cache of a model, in bytes: of each layer, and of groups of layers.

A token costs 2 * H_kv * D elements in an attention layer. In an MLA layer it costs one latent plus
one rotated key, and the latent is replicated on every GPU. The indexer of DeepSeek-V3.2 has a key
of its own in 8 bits with a float32 scale per 128 elements, whatever the cache's dtype. With it,
vLLM serves fp8 as fp8_ds_mla (model_executor/layers/attention/mla_attention.py, FlashMLA's
kernels). DeepSeek-V4 keeps several caches a layer, in blocks of their own (`compressed_cache`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from kvsim.layout import GroupKind, KVGroup, KVLayout, OwnBlock, Reading
from kvsim.model.compressed_cache import compressed_caches
from kvsim.model.kv_formats import (
    FP8_DS_MLA,
    NVFP4_DS_MLA,
    SYNONYMS,
    KVFormat,
    kv_format,
    with_scales,
)
from kvsim.model.layers import (
    Absent,
    Attention,
    CompressedAttention,
    LatentAttention,
    Layer,
    Mixer,
    Recurrence,
)
from kvsim.model.weights import DTYPE_BYTES
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.packed import table_of

SCALED_ELEMENTS = 128


class LayerCache(NamedTuple):
    """A cache of one layer on one GPU; most layers have one.

    bytes_per_token: bytes of one token; 0 for a recurrent state, which has constant bytes in
    state_bytes. window_tokens: length of a sliding window. index_bytes: part of bytes_per_token for
    an indexer's key. drafted_bytes: growth of a state for each draft token. own_block: block of a
    size that does not depend on the engine's block size; bytes_per_token is then its share, rounded
    up. chunk_tokens: chunk length of local attention, if blocks before the current chunk may be
    freed. kv_heads: number of KV heads; only layers with equal heads form a group. reading: how the
    cache in own blocks is read.
    """

    kind: GroupKind
    bytes_per_token: int
    window_tokens: int | None = None
    state_bytes: int = 0
    index_bytes: int = 0
    drafted_bytes: int = 0
    own_block: OwnBlock | None = None
    reading: Reading | None = None
    chunk_tokens: int | None = None
    kv_heads: int = 1


def layer_caches(
    layers: Sequence[Layer],
    torch_dtype: str,
    kv_cache_dtype: str,
    tensor_parallel_size: int,
    scale_group_size: int | None = None,
    scale_bytes: int | None = None,
) -> tuple[LayerCache, ...]:
    """The caches of every layer, on one of tensor_parallel_size GPUs, in order.

    torch_dtype: the model's. scale_group_size and scale_bytes override the format's. Raises
    InputError on an unknown dtype or one that does not suit the model.
    """
    if SYNONYMS.get(kv_cache_dtype, kv_cache_dtype) == "fp8" and _is_sparse(layers):
        kv_cache_dtype = FP8_DS_MLA
    storage = with_scales(
        kv_format(kv_cache_dtype, torch_dtype), kv_cache_dtype, scale_group_size, scale_bytes
    )
    if storage is None:
        _check_latent(layers, kv_cache_dtype)
    found: list[LayerCache] = []
    for layer in layers:
        if isinstance(layer.mixer, CompressedAttention):
            found.extend(_compressed(layer.mixer, kv_cache_dtype))
        else:
            own = storage or kv_cache_dtype
            cache = _cache(layer.mixer, torch_dtype, own, tensor_parallel_size)
            found.extend([] if cache is None else [cache])
    return tuple(found)


def grouped(
    caches: Sequence[LayerCache],
    drafter: Sequence[LayerCache] = (),
    *,
    by_page: bool = False,
    by_chunk: bool = False,
) -> KVLayout:
    """Layers that keep the same kind of state as one group, in the order of their first layer.

    If there are several kinds, or by_page, the layers of a group have equal bytes and heads. With
    by_page or by_chunk, they also have equal chunks of local attention. drafter: the layers of a
    drafter, which follow the others.
    """
    every = (*caches, *drafter)
    groups: dict[int, KVGroup] = {}
    by_chunk |= by_page
    keys = buckets(every, by_page=by_page, by_chunk=by_chunk)
    for index, (cache, key) in enumerate(zip(every, keys, strict=True)):
        before = groups.get(key, KVGroup(cache.kind, 0, 0, cache.window_tokens))
        groups[key] = KVGroup(
            cache.kind,
            before.layers + 1,
            before.bytes_per_token + cache.bytes_per_token,
            cache.window_tokens,
            before.state_bytes + cache.state_bytes,
            before.draft_layers + (index >= len(caches)),
            cache.chunk_tokens if by_chunk else None,
            cache.own_block,
            cache.reading,
        )
    return KVLayout(tuple(_token_shares(groups.values())))


def _token_shares(groups: Iterable[KVGroup]) -> Iterator[KVGroup]:
    """The groups with bytes_per_token computed for groups with own blocks. Rounding is such that
    groups of one block table together have the bytes of a token in their blocks.
    """
    pages: Counter[tuple[object, ...]] = Counter()
    for group in groups:
        if group.own_block is None:
            yield group
            continue
        tokens, key = group.own_block.tokens, table_of(group)
        before = pages[key] // tokens
        pages[key] += group.layers * group.own_block.bytes
        yield replace(group, bytes_per_token=pages[key] // tokens - before)


def buckets(
    every: Sequence[LayerCache], *, by_page: bool = False, by_chunk: bool = False
) -> list[int]:
    """The group number of each layer, by the rules of `grouped`."""
    by_chunk |= by_page
    kinds = {
        (cache.kind, cache.window_tokens, cache.own_block, by_chunk and cache.chunk_tokens)
        for cache in every
    }
    found: dict[tuple[object, ...], int] = {}
    numbers = []
    for cache in every:
        key: tuple[object, ...] = (cache.kind, cache.window_tokens, cache.own_block)
        if by_page or len(kinds) > 1:
            key += cache.bytes_per_token, cache.state_bytes, cache.kv_heads
        if by_chunk:
            key += (cache.chunk_tokens,)
        numbers.append(found.setdefault(key, len(found)))
    return numbers


def widened(caches: Sequence[LayerCache], drafted_tokens: int) -> list[LayerCache]:
    """The caches with recurrent states enlarged for `drafted_tokens` draft tokens."""
    return [
        cache._replace(state_bytes=cache.state_bytes + drafted_tokens * cache.drafted_bytes)
        for cache in caches
    ]


def _cache(mixer: Mixer, torch_dtype: str, storage: KVFormat | str, tp: int) -> LayerCache | None:
    """The cache of one mixer. storage: a format, or the name of a format that only MLA has."""
    if isinstance(mixer, Absent):
        return None
    if isinstance(mixer, Recurrence):
        element = DTYPE_BYTES[torch_dtype]
        conv = mixer.conv_elements // tp * element
        state = conv + mixer.ssm_elements // tp * DTYPE_BYTES[mixer.ssm_dtype]
        drafted = mixer.conv_width // tp * element
        return LayerCache("recurrent", 0, state_bytes=state, drafted_bytes=drafted)
    if isinstance(mixer, LatentAttention) and mixer.expanded:
        assert isinstance(storage, KVFormat)
        heads, width = max(1, mixer.heads // tp), mixer.nope_head_dim + mixer.rope_head_dim
        return LayerCache("full", 2 * storage.num_bytes(width, heads), kv_heads=heads)
    if isinstance(mixer, LatentAttention):
        index = mixer.index_head_dim
        index += 4 * ceil_div(index, SCALED_ELEMENTS)
        token = _latent_bytes(mixer, storage) + index
        return LayerCache("mla", token, index_bytes=index)
    assert isinstance(storage, KVFormat)
    assert isinstance(mixer, Attention)
    if mixer.shares_cache:
        return None
    heads = mixer.kv_heads_on(tp)
    token = storage.num_bytes(mixer.head_dim, heads) + storage.num_bytes(mixer.value_dim, heads)
    kind: GroupKind = "full" if mixer.window_tokens is None else "sliding"
    window, chunk = mixer.window_tokens, mixer.chunk_tokens
    index = 2 * mixer.index_head_dim  # in 16 bits, whatever the cache's dtype
    return LayerCache(
        kind, token + index, window, index_bytes=index, chunk_tokens=chunk, kv_heads=heads
    )


def _compressed(mixer: CompressedAttention, kv_cache_dtype: str) -> Iterator[LayerCache]:
    """The caches of a mixer in the order in which vLLM 0.33 registers them: the indexer's, the
    window, the others.
    """
    blocks = compressed_caches(mixer, kv_cache_dtype)
    unread = Reading(0, 0)  # a state is read where tokens are compressed, not by attention
    pairs = [
        (_own("mla", keys, reading), _own("sliding", states, unread, blocks.held_tokens))
        for keys, states, reading in zip(
            blocks.compressed, blocks.states, blocks.readings, strict=True
        )
    ]
    window = Reading(mixer.window_tokens, mixer.decode_flops_per_pair())
    for pair in pairs[1:]:
        yield from pair
    yield _own("sliding", blocks.window, window, mixer.window_tokens)
    for pair in pairs[:1]:
        yield from pair


def _own(
    kind: GroupKind, block: OwnBlock, reading: Reading, window_tokens: int | None = None
) -> LayerCache:
    token = ceil_div(block.bytes, block.tokens)
    return LayerCache(kind, token, window_tokens, own_block=block, reading=reading)


def _latent_bytes(mixer: LatentAttention, storage: KVFormat | str) -> int:
    latent, rope = mixer.kv_lora_rank, mixer.rope_head_dim
    if storage == FP8_DS_MLA:
        return latent + ceil_div(latent, SCALED_ELEMENTS) * 4 + rope * 2
    if storage == NVFP4_DS_MLA:
        return ceil_div(latent, 2) + ceil_div(latent, 16) + rope
    assert isinstance(storage, KVFormat)
    return storage.num_bytes(latent + rope, 1)


def _is_sparse(layers: Sequence[Layer]) -> bool:
    mixers = (layer.mixer for layer in layers)
    return any(isinstance(mixer, LatentAttention) and mixer.index_heads for mixer in mixers)


def _check_latent(layers: Sequence[Layer], name: str) -> None:
    if any(isinstance(layer.mixer, Attention) for layer in layers) or not any(
        isinstance(layer.mixer, CompressedAttention)
        or (isinstance(layer.mixer, LatentAttention) and not layer.mixer.expanded)
        for layer in layers
    ):
        raise InputError(
            f"{name} stores MLA's latent and this model has none",
            where="kv_cache_dtype",
            remedy="use fp8",
        )
