"""Layers with caches in blocks of their own sizes: groups packed into one block.

Caches that see the same tokens in blocks of as many are a bucket. A bucket whose page sizes come in
equal numbers repeats a pattern of layers; the largest pattern that mixes sizes sets how many
repeats a group should have, the number from there up that wastes fewest, and larger buckets are
dealt out over groups of so many. A block is as large as the widest group; vLLM before 0.27 kept a
place for each size and repeat instead, windows' pages brought up to those of the first bucket
(v1/core/kv_cache_planning.py `_get_packed_kv_cache_groups` of 0.33, v1/core/kv_cache_utils.py
`_get_kv_cache_config_deepseek_v4` of 0.22).
"""

from collections import Counter
from collections.abc import Sequence

from kvsim.model.kv_cache import LayerCache
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.grouping import BlockGroup

# A cache, and whether it is a drafter's.
Entry = tuple[LayerCache, bool]


def pack(
    caches: Sequence[LayerCache], drafter: Sequence[LayerCache], *, by_place: bool
) -> tuple[tuple[BlockGroup, ...], int]:
    """The groups, and the bytes of a block; every cache has a block of its own. by_place: as before
    vLLM 0.27.
    """
    buckets: dict[tuple[object, ...], list[Entry]] = {}
    marked = [*((cache, False) for cache in caches), *((cache, True) for cache in drafter)]
    for cache, drafts in marked:
        assert cache.own_block is not None
        key = (cache.kind, cache.window_tokens, cache.own_block.tokens)
        buckets.setdefault(key, []).append((cache, drafts))
    every = list(buckets.values())
    # The cache of all tokens comes first.
    every.sort(key=lambda bucket: bucket[0][0].kind != "mla")
    repeats = _repeats_a_group(every, by_place)
    groups: list[list[Entry]] = []
    for bucket in every:
        sizes = Counter(_page(cache) for cache, _ in bucket)
        count = ceil_div(max(sizes.values()), repeats) if _balanced(sizes) else 1
        if by_place and bucket is every[0]:
            count = 1
        groups.extend(_dealt(bucket, first, count) for first in range(count))
    pages = [[_page(cache) for cache, _ in group] for group in groups]
    block_bytes = _places(pages) if by_place else max(map(sum, pages))
    return tuple(_group(*each) for each in zip(groups, pages, strict=True)), block_bytes


def _page(cache: LayerCache) -> int:
    assert cache.own_block is not None
    return cache.own_block.bytes


def _balanced(sizes: Counter[int]) -> bool:
    return len(set(sizes.values())) == 1


def _repeats_a_group(buckets: Sequence[list[Entry]], by_place: bool) -> int:
    counts = [Counter(_page(cache) for cache, _ in bucket) for bucket in buckets]
    if by_place:
        patterns = [max(sizes.values()) for sizes in counts]
        return _least_padding(patterns, patterns[0])
    patterns = [max(sizes.values()) for sizes in counts if _balanced(sizes)]
    mixed = [max(sizes.values()) for sizes in counts if _balanced(sizes) and len(sizes) > 1]
    return _least_padding(patterns, max(mixed)) if mixed else sum(map(len, buckets))


def _least_padding(counts: Sequence[int], least: int) -> int:
    """The number from `least` up with multiples that pad `counts` least; of equals the largest."""
    numbers = range(least, max(max(counts), least) + 1)
    return min(numbers, key=lambda number: (sum(-count % number for count in counts), -number))


def _dealt(bucket: list[Entry], first: int, count: int) -> list[Entry]:
    """Every count-th repeat of the bucket's pattern, from `first` on."""
    by_size: dict[int, list[Entry]] = {}
    for entry in bucket:
        by_size.setdefault(_page(entry[0]), []).append(entry)
    return [entry for entries in by_size.values() for entry in entries[first::count]]


def _group(entries: Sequence[Entry], pages: Sequence[int]) -> BlockGroup:
    first = entries[0][0]
    assert first.own_block is not None
    return BlockGroup(
        first.kind,
        len(entries),
        sum(cache.bytes_per_token for cache, _ in entries),
        first.window_tokens,
        draft_layers=sum(drafted for _, drafted in entries),
        block_size=first.own_block.tokens,
        page_bytes=tuple(dict.fromkeys(pages)),
    )


def _places(groups: Sequence[Sequence[int]]) -> int:
    """Bytes of a place for each size of the first group's pages, as often as the longest group
    repeats.
    """
    sizes = sorted(set(groups[0]))
    repeats = 0
    for pages in groups:
        brought = Counter(min(s for s in sizes if s >= page) for page in pages)
        repeats = max(repeats, *brought.values())
    return repeats * sum(sizes)
