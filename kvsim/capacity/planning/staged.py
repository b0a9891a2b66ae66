"""The blocks of all stages of a pipeline, as one stage holds them.

The layers of all stages are dealt out to groups together. Each stage has, of every group, the
layers that it computes, and its blocks are as large as the fullest of these. Source: vLLM 0.33,
v1/core/kv_cache_planning.py, `_project_kv_cache_groups_to_worker`.
"""

from collections import Counter
from collections.abc import Sequence

from kvsim.model.kv_cache import LayerCache, buckets
from kvsim.vllm.grouping import Grouping


def on_stage(
    grouping: Grouping, caches: Sequence[LayerCache], drafter: Sequence[LayerCache], held: range
) -> Grouping:
    """`grouping` restricted to the layers at `held`; a drafter's layers come after the others."""
    parts = Counter(group.bucket for group in grouping.groups)
    first = {group.bucket: g for g, group in reversed(list(enumerate(grouping.groups)))}
    of_group: list[list[int]] = [[] for _ in grouping.groups]
    seen: Counter[int] = Counter()
    every = [*caches, *drafter]
    for position, bucket in enumerate(buckets(every, by_page=True)):
        bucket = bucket if len(grouping.groups) > 1 else 0
        if position in held:
            of_group[first[bucket] + seen[bucket] % parts[bucket]].append(position)
        seen[bucket] += 1
    groups = []
    for group, positions in zip(grouping.groups, of_group, strict=True):
        own = [every[position] for position in positions]
        groups.append(
            group._replace(
                layers=len(own),
                slot_bytes=sum(cache.bytes_per_token for cache in own),
                state_bytes=sum(cache.state_bytes for cache in own),
                draft_layers=sum(position >= len(caches) for position in positions),
            )
        )
    fullest = max(len(positions) for positions in of_group)
    block_bytes = fullest * grouping.block_bytes // grouping.group_layers
    if len(groups) == 1:  # its layers may differ
        (only,) = groups
        block_bytes = only.state_bytes or only.block_size * only.slot_bytes
    return Grouping(tuple(groups), fullest, grouping.block_size, block_bytes)
