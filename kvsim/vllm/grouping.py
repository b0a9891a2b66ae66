"""How a model's layers share one pool of blocks: groups of layers, one block table each.

vLLM gives every group as many layers, so that one block size in bytes fits all of them (v1/core/
kv_cache_planning.py). A group has as many layers as the rarest kind of the model; the layers of a
kind are dealt out to as many groups as they need, and what a group lacks is padding in each of its
blocks. Where a token takes more bytes in layers of one kind than of another, a block of the other
holds so many times more tokens, or padding where that does not divide. A recurrent state takes one
block of its own: the block size in tokens grows until it fits.
"""

from math import lcm
from typing import NamedTuple

from kvsim.layout import GroupKind, KVGroup, KVLayout
from kvsim.plumbing.units import ceil_div

# Tokens in a block that must hold a state: multiples of these, beside MLA, and where a prefill
# kernel writes states out within a chunk (vLLM 0.33, platforms/interface.py).
MLA_GRANULARITY = 128
EXPORT_GRANULARITY = 64


class BlockGroup(NamedTuple):
    """Layers with one block table.

    layers: real ones. slot_bytes: what a token costs in them, 0 for a recurrent state.
    window_tokens: as in KVGroup. state_bytes: what a sequence's one block holds, else 0. drafts:
    some of these layers, or of their like, are a drafter's. block_size: tokens in a block. bucket:
    which group of the layout its layers are of.
    """

    kind: GroupKind
    layers: int
    slot_bytes: int
    window_tokens: int | None = None
    state_bytes: int = 0
    drafts: bool = False
    block_size: int = 1
    bucket: int = 0


class Grouping(NamedTuple):
    """groups: in the order of the model's layers. group_layers: layers of each, padding included.

    A block is `block_size` slots of `slot_bytes` bytes, whatever group has it: the slots of the
    groups whose blocks hold fewest tokens.
    """

    groups: tuple[BlockGroup, ...]
    group_layers: int
    block_size: int
    slot_bytes: int

    @property
    def hit_tokens(self) -> int:
        """Hits end at multiples of so many tokens, where they end with blocks."""
        return lcm(*(group.block_size for group in self.groups))

    @property
    def padding_layers(self) -> int:
        """Layers that exist in blocks alone."""
        return self.group_layers * len(self.groups) - sum(group.layers for group in self.groups)


def is_uniform(layout: KVLayout, *, windows: bool) -> bool:
    """Whether one block table does for all layers: all keep every token, or are made to, where
    `windows` do not count or blocks cannot be made to weigh the same (MLA's are never padded).
    """
    kinds = {group.kind for group in layout.groups}
    if "recurrent" in kinds:
        return False
    slots = [ceil_div(group.bytes_per_token, group.layers) for group in layout.groups]
    latent = [slot for slot, group in zip(slots, layout.groups, strict=True) if group.kind == "mla"]
    return not windows or "sliding" not in kinds or any(max(slots) % slot for slot in latent)


def one_table(layout: KVLayout, block_size: int) -> Grouping:
    """All layers of `layout` in one group that keeps every token, whatever their windows."""
    layers, slot_bytes = sum(group.layers for group in layout.groups), layout.bytes_per_token
    group = BlockGroup("full", layers, slot_bytes, block_size=block_size)
    return Grouping((group,), layers, block_size, slot_bytes)


def group_layers(
    layout: KVLayout,
    block_size: int,
    *,
    commonest_sizes_groups: bool = True,
    unequal_blocks: bool = True,
    exports_states: bool = False,
) -> Grouping:
    """Deal the layers of `layout` (at least one group with KV) out to groups.

    commonest_sizes_groups, unequal_blocks: see BlockRules. exports_states: kept states are written
    out within chunks.
    """
    counts = [group.layers for group in layout.groups]
    size = min(counts)
    if commonest_sizes_groups and max(counts) < 1.5 * size:
        size = max(counts)
    slots = [ceil_div(group.bytes_per_token, group.layers) for group in layout.groups]
    largest = max(slots)
    # Layers of one kind are one group, whatever a token takes in each.
    alone = layout.groups[0].bytes_per_token if len(slots) == 1 else 0
    layer_state = max(ceil_div(group.state_bytes, group.layers) for group in layout.groups)
    if layer_state:
        latent = any(group.kind == "mla" for group in layout.groups)
        step = max(block_size, MLA_GRANULARITY) if latent else block_size
        if exports_states:
            step = lcm(step, EXPORT_GRANULARITY)
        block_size = max(block_size, step * ceil_div(layer_state, largest * step))
    groups: list[BlockGroup] = []
    for bucket, (group, slot) in enumerate(zip(layout.groups, slots, strict=True)):
        times = largest // slot if unequal_blocks and slot and largest % slot == 0 else 1
        groups += _dealt(group, size, block_size * times, bucket)
    return Grouping(tuple(groups), size, block_size, alone or largest * size)


def _dealt(group: KVGroup, size: int, block_size: int, bucket: int) -> list[BlockGroup]:
    """`group` in as few parts of at most `size` layers as possible, as even as possible."""
    num_parts = ceil_div(group.layers, size)
    parts, before = [], 0
    for index in range(num_parts):
        after = before + (group.layers - index + num_parts - 1) // num_parts
        slot, state = (
            total * after // group.layers - total * before // group.layers
            for total in (group.bytes_per_token, group.state_bytes)
        )
        drafts = group.draft_layers > 0
        layers, window = after - before, group.window_tokens
        parts.append(
            BlockGroup(group.kind, layers, slot, window, state, drafts, block_size, bucket)
        )
        before = after
    return parts
