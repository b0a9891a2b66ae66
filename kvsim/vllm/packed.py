"""Layers with caches in blocks of their own sizes: groups packed into one block.

Caches that see the same tokens in blocks of as many are a bucket. A bucket with equal numbers of
its page sizes repeats a pattern of layers. The largest pattern that mixes sizes sets the number of
repeats of a group: the number from there up that wastes fewest. Larger buckets are split into
groups of that many. A block is as large as the widest group (v1/core/ kv_cache_planning.py
`_get_packed_kv_cache_groups` of vLLM 0.33). Before 0.27 windows' pages were enlarged to those of
the first bucket, and a block had places. These were one for each size and repeat
(v1/core/kv_cache_utils.py `_get_kv_cache_config_deepseek_v4` of 0.22). In 0.26 they were, for each
size, as many as the group with most pages of it has (`_bucket_layers_by_page_size`).
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from kvsim.layout import KVGroup, KVLayout
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.rules import Packing


class PackedLayers(NamedTuple):
    """Layers of `group` in one part, draft_layers of them a drafter's; page_bytes: bytes of one
    block in one layer, padding included.
    """

    group: KVGroup
    layers: int
    draft_layers: int
    page_bytes: int


class PackedGroup(NamedTuple):
    """Layers with one block table, in blocks of `tokens` tokens; bucket: see above."""

    shares: tuple[PackedLayers, ...]
    tokens: int
    bucket: int

    @property
    def bytes(self) -> int:
        """Bytes of a block in all these layers, padding of pages included."""
        return sum(share.layers * share.page_bytes for share in self.shares)

    @property
    def kept_bytes(self) -> int:
        """Bytes of a block in all these layers that can hold KV, without padding of pages."""
        blocks = ((share.layers, share.group.own_block) for share in self.shares)
        return sum(layers * block.bytes for layers, block in blocks if block is not None)


def table_of(group: KVGroup) -> tuple[object, ...]:
    """The properties in which layers must agree to share one block table."""
    assert group.own_block is not None
    return group.kind, group.window_tokens, group.own_block.tokens


def dealt(layers: int, part: int, parts: int) -> int:
    """Number of `layers` layers that part number `part` of `parts` gets, dealt round-robin."""
    return (layers - part + parts - 1) // parts


def pack(layout: KVLayout, packing: Packing) -> tuple[list[PackedGroup], int]:
    """Pack caches with blocks of their own sizes; returns the groups, one block table each, and the
    bytes of a block.

    packing: see BlockRules; versions that had places began with the cache of all tokens.
    """
    buckets: dict[tuple[object, ...], list[KVGroup]] = {}
    for group in layout.groups:
        buckets.setdefault(table_of(group), []).append(group)
    every, by_place = list(buckets.values()), packing != "widest"
    if by_place:
        every.sort(key=lambda bucket: bucket[0].kind != "mla")
    repeats = _repeats_a_part(every, by_place)
    parts = []
    for index, bucket in enumerate(every):
        most = max(group.layers for group in bucket)
        count = ceil_div(most, repeats) if _balanced(bucket) else 1
        if by_place and not index:
            count = 1
        parts += [_part(bucket, number, count, index) for number in range(count)]
    if not by_place:
        return parts, max(part.bytes for part in parts)
    sizes = sorted({share.page_bytes for share in parts[0].shares})
    parts = [_brought_up(part, sizes) for part in parts]
    return parts, _places(parts, sizes, every_repeat=packing == "repeats")


def _part(bucket: Sequence[KVGroup], number: int, count: int, index: int) -> PackedGroup:
    """Group `number` of the `count` groups of a bucket: every count-th repeat of its layers."""
    shares, tokens = [], 1
    for group in bucket:
        assert group.own_block is not None
        tokens, layers = group.own_block.tokens, dealt(group.layers, number, count)
        drafts = layers - dealt(group.layers - group.draft_layers, number, count)
        shares.append(PackedLayers(group, layers, drafts, group.own_block.bytes))
    return PackedGroup(tuple(shares), tokens, index)


def _balanced(bucket: Sequence[KVGroup]) -> bool:
    return len({group.layers for group in bucket}) == 1


def _repeats_a_part(buckets: Sequence[Sequence[KVGroup]], by_place: bool) -> int:
    patterns = [max(group.layers for group in bucket) for bucket in buckets]
    if by_place:
        return _least_padding(patterns, patterns[0])
    balanced = [most for most, bucket in zip(patterns, buckets, strict=True) if _balanced(bucket)]
    mixed = [
        most
        for most, bucket in zip(patterns, buckets, strict=True)
        if _balanced(bucket) and len(bucket) > 1
    ]
    return _least_padding(balanced, max(mixed)) if mixed else sum(map(len, buckets)) * max(patterns)


def _least_padding(counts: Sequence[int], least: int) -> int:
    """The n >= `least` with least padding of `counts` to multiples of n; the largest of equals."""
    numbers = range(least, max(max(counts), least) + 1)
    return min(numbers, key=lambda number: (sum(-count % number for count in counts), -number))


def _brought_up(part: PackedGroup, sizes: Sequence[int]) -> PackedGroup:
    """The group with each page padded to the smallest of these sizes that holds it."""
    shares = (
        share._replace(page_bytes=min(size for size in sizes if size >= share.page_bytes))
        for share in part.shares
    )
    return part._replace(shares=tuple(shares))


def _places(parts: Sequence[PackedGroup], sizes: Sequence[int], *, every_repeat: bool) -> int:
    """Bytes of a block with places: for each page size, as many places as the group with most pages
    of this size has.

    every_repeat: each page size has as many places as the most frequent size.
    """
    most: Counter[int] = Counter()
    for part in parts:
        own: Counter[int] = Counter()
        for share in part.shares:
            own[share.page_bytes] += share.layers
        most |= own
    if every_repeat:
        return max(most.values()) * sum(sizes)
    return sum(size * count for size, count in most.items())
