"""How a model's layers share one pool of blocks: groups of layers, one block table each.

vLLM gives every group as many layers, so that one block size in bytes fits all of them (v1/core/
kv_cache_planning.py). A group has as many layers as the rarest kind of the model; the layers of a
kind are dealt out to as many groups as they need, and what a group lacks is padding in each of its
blocks. A recurrent state takes one block of its own: the block size in tokens grows until it fits.
"""

from typing import NamedTuple

from kvsim.layout import GroupKind, KVGroup, KVLayout
from kvsim.plumbing.units import ceil_div


class BlockGroup(NamedTuple):
    """Layers with one block table.

    layers: real ones. slot_bytes: what a token costs in them, 0 for a recurrent state.
    window_tokens: as in KVGroup. state_bytes: what a sequence's one block holds, else 0. drafts:
    some of these layers, or of their like, are a drafter's.
    """

    kind: GroupKind
    layers: int
    slot_bytes: int
    window_tokens: int | None = None
    state_bytes: int = 0
    drafts: bool = False


class Grouping(NamedTuple):
    """groups: in the order of the model's layers. group_layers: layers of each, padding included.

    A block is `block_size` slots of `slot_bytes` bytes, whatever group has it.
    """

    groups: tuple[BlockGroup, ...]
    group_layers: int
    block_size: int
    slot_bytes: int

    @property
    def padding_layers(self) -> int:
        """Layers that exist in blocks alone."""
        return self.group_layers * len(self.groups) - sum(group.layers for group in self.groups)


def is_uniform(layout: KVLayout, *, windows: bool) -> bool:
    """Whether one block table does for all layers: all keep every token, or are made to, where
    `windows` do not count.
    """
    several = ("sliding", "recurrent") if windows else ("recurrent",)
    return not any(group.kind in several for group in layout.groups)


def group_layers(
    layout: KVLayout, block_size: int, *, commonest_sizes_groups: bool = True
) -> Grouping:
    """Deal the layers of `layout` (at least one group with KV) out to groups.

    commonest_sizes_groups: see BlockRules.
    """
    counts = [group.layers for group in layout.groups]
    size = min(counts)
    if commonest_sizes_groups and max(counts) < 1.5 * size:
        size = max(counts)
    layer_slot = max(ceil_div(group.bytes_per_token, group.layers) for group in layout.groups)
    layer_state = max(ceil_div(group.state_bytes, group.layers) for group in layout.groups)
    block_size *= max(1, ceil_div(layer_state, layer_slot * block_size))
    groups = tuple(part for group in layout.groups for part in _dealt(group, size))
    return Grouping(groups, size, block_size, layer_slot * size)


def _dealt(group: KVGroup, size: int) -> list[BlockGroup]:
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
        layers = after - before
        parts.append(BlockGroup(group.kind, layers, slot, group.window_tokens, state, drafts))
        before = after
    return parts
