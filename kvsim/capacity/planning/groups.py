"""Layers in groups of equal blocks: each group has block tables of its own out of one pool.

Layers of one kind, whatever their pages, are one group. Otherwise every layer's page is brought to
the largest one's size (more tokens a block if that divides, padding if not), layers are sorted into
buckets by what they keep, and each bucket is dealt out over groups as large as the smallest bucket
(as the largest, if that is less than half larger). Caches with blocks of their own are `packed`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.capacity.planning.block_size import attention_block_size, state_bytes
from kvsim.capacity.planning.packed import pack
from kvsim.capacity.planning.serving import Serving
from kvsim.layout import GroupKind
from kvsim.model.kv_cache import LayerCache
from kvsim.plumbing.units import ceil_div


class PlannedLayer(NamedTuple):
    """A layer with its page: tokens in a block, bytes of it; drafter: it is a drafter's."""

    cache: LayerCache
    drafter: bool
    block_size: int
    page_bytes: int

    @property
    def bucket(self) -> tuple[object, ...]:
        """What layers of one group have in common."""
        cache = self.cache
        sees = cache.kind, cache.window_tokens, cache.chunk_tokens
        return *sees, cache.state_bytes, cache.bytes_per_token, cache.kv_heads


class CacheGroup(NamedTuple):
    """Layers that share block tables.

    block_size: tokens in a block. page_bytes: of one layer and block, the different sizes in order
    of appearance. bytes: of one block over all layers, padding of packed ones included.
    window_tokens: of a sliding group. state_bytes: used in a recurrent page, the rest of which is
    padding. draft_layers: of `layers`, those of a drafter. speculative_blocks, checkpoint_blocks:
    that a recurrent request holds beside its state. drops: a hit loses its last unit here.
    chunk_tokens: of local attention, the chunks before the current one being given back.
    """

    kind: GroupKind
    layers: int
    block_size: int
    page_bytes: tuple[int, ...]
    bytes: int
    window_tokens: int | None = None
    state_bytes: int = 0
    draft_layers: int = 0
    speculative_blocks: int = 0
    checkpoint_blocks: int = 0
    drops: bool = False
    chunk_tokens: int | None = None


def plan_groups(
    caches: Sequence[LayerCache], drafter: Sequence[LayerCache], serving: Serving
) -> tuple[CacheGroup, ...]:
    """The groups in order; `drafter`: the caches of a drafter's own layers."""
    if any(cache.own_block for cache in caches):
        return _packed(caches, drafter, serving)
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
        return (_group(layers, serving),)
    buckets: dict[tuple[object, ...], list[PlannedLayer]] = {}
    for layer in _equal_pages(layers):
        buckets.setdefault(layer.bucket, []).append(layer)
    sizes = [len(bucket) for bucket in buckets.values()]
    size = max(sizes) if max(sizes) < 1.5 * min(sizes) else min(sizes)
    groups = []
    for bucket in buckets.values():
        count = ceil_div(len(bucket), size)
        groups += [_group(bucket[first::count], serving) for first in range(count)]
    return tuple(groups)


def _packed(
    caches: Sequence[LayerCache], drafter: Sequence[LayerCache], serving: Serving
) -> tuple[CacheGroup, ...]:
    groups, block_bytes = pack(caches, drafter, by_place=serving.packs_by_place)
    return tuple(
        CacheGroup(
            kind=group.cache.kind,
            layers=len(group.page_bytes),
            block_size=group.block_size,
            page_bytes=tuple(dict.fromkeys(group.page_bytes)),
            bytes=block_bytes,
            window_tokens=group.cache.window_tokens,
            draft_layers=group.draft_layers,
        )
        for group in groups
    )


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
    page = max(block_size * token, state_bytes(cache, serving))
    size = block_size if serving.enable_prefix_caching else serving.max_model_len
    return PlannedLayer(cache, drafter, size, page)


def _type(layer: PlannedLayer) -> tuple[object, ...]:
    cache = layer.cache
    kind = "full" if cache.kind == "mla" else cache.kind
    return kind, cache.window_tokens, cache.chunk_tokens, cache.state_bytes


def _pages_differ(layers: Sequence[PlannedLayer]) -> bool:
    """Whether pages cannot be made equal: those of MLA's latent cannot be padded. Layers with
    windows then keep every token (`_try_get_full_allocation_fallback_groups`).
    """
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


def _group(layers: Sequence[PlannedLayer], serving: Serving) -> CacheGroup:
    first, cache = layers[0], layers[0].cache
    drafts = sum(layer.drafter for layer in layers)
    recurrent = cache.kind == "recurrent"
    speculation = serving.speculation
    dropping = speculation is not None and speculation.drops_last_block and drafts > 0
    exports = recurrent and serving.exports_states and serving.enable_prefix_caching
    return CacheGroup(
        kind=cache.kind,
        layers=len(layers),
        block_size=first.block_size,
        page_bytes=tuple(dict.fromkeys(layer.page_bytes for layer in layers)),
        bytes=sum(layer.page_bytes for layer in layers),
        window_tokens=cache.window_tokens,
        state_bytes=state_bytes(cache, serving),
        draft_layers=drafts,
        speculative_blocks=serving.drafted_tokens if recurrent else 0,
        checkpoint_blocks=int(exports),
        drops=dropping and not recurrent,
        chunk_tokens=cache.chunk_tokens,
    )
