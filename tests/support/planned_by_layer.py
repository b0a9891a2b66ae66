"""Layers dealt out to groups one by one, as vLLM 0.33's own planner does it: what
`kvsim.vllm.grouping` says in whole numbers of layers is held against this.
"""

from collections.abc import Sequence
from math import lcm
from typing import NamedTuple

from kvsim.capacity.planning import Serving
from kvsim.model.kv_cache import LayerCache
from kvsim.plumbing.units import ceil_div


class PlannedLayer(NamedTuple):
    cache: LayerCache
    drafter: bool
    block_size: int
    page_bytes: int

    @property
    def bucket(self) -> tuple[object, ...]:
        cache = self.cache
        sees = cache.kind, cache.window_tokens, cache.chunk_tokens
        return *sees, cache.state_bytes, cache.bytes_per_token, cache.kv_heads


class PlannedGroup(NamedTuple):
    kind: str
    layers: int
    block_size: int
    page_bytes: tuple[int, ...]
    bytes: int
    window_tokens: int | None
    draft_layers: int
    chunk_tokens: int | None


def plan_by_layer(
    caches: Sequence[LayerCache], drafter: Sequence[LayerCache], serving: Serving
) -> list[PlannedGroup]:
    if not serving.gives_chunks_back:
        caches = [cache._replace(chunk_tokens=None) for cache in caches]
    block_size = attention_block_size([*caches, *drafter], serving)
    layers = [
        *(_planned(cache, False, block_size, caches, serving) for cache in caches),
        *(_planned(cache, True, block_size, caches, serving) for cache in drafter),
    ]
    if _pages_differ(layers):
        layers = [layer._replace(cache=_without_window(layer.cache)) for layer in layers]
    if len({_type(layer) for layer in layers}) == 1:
        return [_group(layers)]
    buckets: dict[tuple[object, ...], list[PlannedLayer]] = {}
    for layer in _equal_pages(layers):
        buckets.setdefault(layer.bucket, []).append(layer)
    sizes = [len(bucket) for bucket in buckets.values()]
    size = max(sizes) if max(sizes) < 1.5 * min(sizes) else min(sizes)
    groups = []
    for bucket in buckets.values():
        count = ceil_div(len(bucket), size)
        groups += [_group(bucket[first::count]) for first in range(count)]
    return groups


def attention_block_size(caches: Sequence[LayerCache], serving: Serving) -> int:
    size = serving.block_size
    if size is None:
        size = 64 if any(cache.index_bytes for cache in caches) else 16
    token = max((cache.bytes_per_token for cache in caches), default=0)
    state = max((_state_bytes(cache, serving) for cache in caches), default=0)
    if not state or not token:
        return size
    granularity = size
    if any(cache.kind == "mla" for cache in caches):
        granularity = max(granularity, 128)
    if serving.enable_prefix_caching and serving.exports_states:
        granularity = lcm(granularity, 64)
    return max(size, granularity * ceil_div(state, granularity * token))


def _state_bytes(cache: LayerCache, serving: Serving) -> int:
    return cache.state_bytes and cache.state_bytes + serving.drafted_tokens * cache.drafted_bytes


def _planned(
    cache: LayerCache,
    drafter: bool,
    block_size: int,
    target: Sequence[LayerCache],
    serving: Serving,
) -> PlannedLayer:
    if cache.kind != "recurrent":
        return PlannedLayer(cache, drafter, block_size, block_size * cache.bytes_per_token)
    token = max((other.bytes_per_token for other in target), default=0)
    page = max(block_size * token, _state_bytes(cache, serving))
    size = block_size if serving.enable_prefix_caching else serving.max_model_len
    return PlannedLayer(cache, drafter, size, page)


def _type(layer: PlannedLayer) -> tuple[object, ...]:
    cache = layer.cache
    kind = "full" if cache.kind == "mla" else cache.kind
    return kind, cache.window_tokens, cache.chunk_tokens, cache.state_bytes


def _pages_differ(layers: Sequence[PlannedLayer]) -> bool:
    if any(layer.cache.kind == "recurrent" for layer in layers):
        return False
    largest = max(layer.page_bytes for layer in layers)
    return any(layer.cache.kind == "mla" and largest % layer.page_bytes for layer in layers)


def _without_window(cache: LayerCache) -> LayerCache:
    return cache if cache.kind == "mla" else cache._replace(kind="full", window_tokens=None)


def _equal_pages(layers: Sequence[PlannedLayer]) -> list[PlannedLayer]:
    largest = max(layer.page_bytes for layer in layers)
    equal = []
    for layer in layers:
        if layer.cache.kind != "recurrent" and largest % layer.page_bytes == 0:
            more = layer.block_size * (largest // layer.page_bytes)
            layer = layer._replace(block_size=more)
        equal.append(layer._replace(page_bytes=largest))
    return equal


def _group(layers: Sequence[PlannedLayer]) -> PlannedGroup:
    first = layers[0]
    return PlannedGroup(
        first.cache.kind,
        len(layers),
        first.block_size,
        tuple(dict.fromkeys(layer.page_bytes for layer in layers)),
        sum(layer.page_bytes for layer in layers),
        first.cache.window_tokens,
        sum(layer.drafter for layer in layers),
        first.cache.chunk_tokens,
    )
