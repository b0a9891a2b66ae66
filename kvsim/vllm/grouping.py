"""How the layers of a model share one pool of blocks: groups of layers, one block table each.

Blocks take the same bytes in every group (vLLM 0.33, v1/core/kv_cache_planning.py,
v1/core/kv_cache_utils.py, platforms/interface.py):

    one kind     Layers of one kind are one group, whatever bytes a token takes in each. Where every
                 layer keeps every token, all are of one kind.
    equal pages  Otherwise a layer's part of a block, its page, has the same bytes in all layers: a
                 block holds more tokens where the page of fewer tokens divides the largest page,
                 and padding where it does not.
    groups       The rarest kind of layer is one group. The layers of another kind are dealt out to
                 groups of at most as many layers, and a group of fewer layers has padding in each
                 of its blocks.
    states       A recurrent state takes one page, so attention layers have blocks of

                     B = g * ceil(bytes of a state / (g * bytes of a token in one attention layer))

                 tokens, where g is the block size asked for, at least 128 with MLA, and a multiple
                 of 64 where prefill kernels write states out within a chunk.
"""

from collections import Counter
from math import lcm
from typing import NamedTuple

from kvsim.layout import GroupKind, KVGroup, KVLayout
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.packed import dealt, pack
from kvsim.vllm.rules import Packing

MLA_GRANULARITY = 128
EXPORT_GRANULARITY = 64


class BlockGroup(NamedTuple):
    """Layers with one block table.

    layers: real layers, padding layers left out.
    slot_bytes: bytes of a token in these layers, 0 for a recurrent state.
    window_tokens, chunk_tokens: as in KVGroup.
    state_bytes: bytes of the states of one sequence in these layers, else 0.
    draft_layers: of the layers, those of a drafter.
    block_size: tokens in a block.
    page_bytes: bytes of a block in one layer, padding included; the different ones.
    bucket: index of the layers' group in the layout.
    """

    kind: GroupKind
    layers: int
    slot_bytes: int
    window_tokens: int | None = None
    state_bytes: int = 0
    draft_layers: int = 0
    block_size: int = 1
    page_bytes: tuple[int, ...] = ()
    bucket: int = 0
    chunk_tokens: int | None = None

    def blocks_at_once(self, slots: int, ahead: int) -> int:
        """Most blocks of one sequence with `slots` slots, without states.

        A window, wherever it begins, or a chunk of local attention keeps `ahead` of them in
        addition to its own.
        """
        blocks = ceil_div(slots, self.block_size)
        kept = self.kept_tokens
        if kept is None:
            return blocks
        partial = int(self.chunk_tokens is None)  # a window may begin inside a block
        return min(blocks, ceil_div(kept + ahead, self.block_size) + partial)

    @property
    def kept_tokens(self) -> int | None:
        """Computed tokens that the next token may need; None: all."""
        if self.window_tokens is not None:
            return self.window_tokens - 1
        return self.chunk_tokens


class Grouping(NamedTuple):
    """The groups of a model's layers, in the order of the layers.

    group_layers: layers of each group, padding layers included.
    block_size: tokens in the smallest block that keeps tokens.
    block_bytes: bytes of a block, of whichever group.
    """

    groups: tuple[BlockGroup, ...]
    group_layers: int
    block_size: int
    block_bytes: int

    @property
    def slot_bytes(self) -> int:
        """Bytes of a block divided by its `block_size` slots."""
        return self.block_bytes // self.block_size

    @property
    def hit_tokens(self) -> int:
        """Hits end at multiples of this number of tokens, where hits end with blocks."""
        return lcm(*(group.block_size for group in self.groups))

    @property
    def padding_layers(self) -> int:
        """Number of padding layers: parts of blocks that no layer uses."""
        return self.group_layers * len(self.groups) - sum(group.layers for group in self.groups)


def states_at_once(drafted_tokens: int, *, caching: bool, exports: bool) -> int:
    """Recurrent states of one sequence in one group: its own, and one for each token drafted ahead.

    With prefix caching also the cached one that stays until the next is whole, and one that prefill
    writes out within a chunk.
    """
    return (2 + exports if caching else 1) + drafted_tokens


def is_uniform(layout: KVLayout, *, windows: bool = True) -> bool:
    """Whether one block table suffices for all layers, because all keep every token.

    Windows are given up where `windows` is false, and where pages cannot be made equal, as MLA's
    are never padded (`_try_get_full_allocation_fallback_groups`).
    """
    if layout.has_own_blocks or any(group.kind == "recurrent" for group in layout.groups):
        return False
    if not windows or all(_keeps_all(group) for group in layout.groups):
        return True
    slots = [_token_bytes(group) for group in layout.groups]
    latent = [slot for slot, group in zip(slots, layout.groups, strict=True) if group.kind == "mla"]
    return any(max(slots) % slot for slot in latent)


def one_table(layout: KVLayout, block_size: int) -> Grouping:
    """All layers of `layout` in one group that keeps every token, whatever their windows."""
    pages = (block_size * _token_bytes(group) for group in layout.groups)
    group = BlockGroup(
        "mla" if layout.groups[0].kind == "mla" else "full",
        sum(group.layers for group in layout.groups),
        layout.bytes_per_token,
        draft_layers=sum(group.draft_layers for group in layout.groups),
        block_size=block_size,
        page_bytes=tuple(dict.fromkeys(pages)),
    )
    return Grouping((group,), group.layers, block_size, block_size * group.slot_bytes)


def group_layers(
    layout: KVLayout,
    block_size: int,
    *,
    commonest_sizes_groups: bool = True,
    packing: Packing = "widest",
    exports_states: bool = False,
    state_block_size: int | None = None,
) -> Grouping:
    """Split `layout` into groups with layers of equal bytes, or into one group.

    block_size: tokens in a block, as asked for.
    commonest_sizes_groups, packing: see BlockRules.
    exports_states: prefill kernels write states out within a chunk.
    state_block_size: tokens of a block that holds a state; None: as of an attention layer.
    """
    if layout.has_own_blocks:
        return _packed(layout, packing)
    if is_uniform(layout):
        return one_table(layout, block_size)
    block_size = _beside_states(layout, block_size, exports_states)
    slots = [_token_bytes(group) for group in layout.groups]
    states = [ceil_div(group.state_bytes, group.layers) for group in layout.groups]
    pages = [max(block_size * slot, state) for slot, state in zip(slots, states, strict=True)]
    state_block_size = state_block_size or block_size
    if len({_kept(group) for group in layout.groups}) == 1:
        one = one_table(layout, block_size if any(slots) else state_block_size)
        first, state = layout.groups[0], sum(group.state_bytes for group in layout.groups)
        only = one.groups[0]._replace(
            kind=first.kind,
            window_tokens=first.window_tokens,
            state_bytes=state,
            chunk_tokens=first.chunk_tokens,
            page_bytes=tuple(dict.fromkeys(pages)),
        )
        return one._replace(groups=(only,), block_bytes=one.block_bytes or state)
    page, counts = max(pages), [group.layers for group in layout.groups]
    size = min(counts)
    if commonest_sizes_groups and max(counts) < 1.5 * size:
        size = max(counts)
    groups: list[BlockGroup] = []
    for bucket, (group, slot) in enumerate(zip(layout.groups, slots, strict=True)):
        tokens = block_size if slot else state_block_size
        if slot and page % (block_size * slot) == 0:
            tokens = page // slot
        groups += _dealt(group, size, tokens, page, bucket)
    return Grouping(tuple(groups), size, block_size, size * page)


def _packed(layout: KVLayout, packing: Packing) -> Grouping:
    """The groups of caches in blocks of their own sizes; the first that keeps every token sets the
    size of a block.
    """
    parts, block_bytes = pack(layout, packing)
    pages: Counter[int] = Counter()
    groups = []
    for part in parts:
        first = part.shares[0].group
        before = pages[part.bucket] // part.tokens
        pages[part.bucket] += part.kept_bytes
        groups.append(
            BlockGroup(
                first.kind,
                sum(share.layers for share in part.shares),
                pages[part.bucket] // part.tokens - before,
                first.window_tokens,
                draft_layers=sum(share.draft_layers for share in part.shares),
                block_size=part.tokens,
                page_bytes=tuple(dict.fromkeys(share.page_bytes for share in part.shares)),
                bucket=part.bucket,
            )
        )
    most, least = max(g.layers for g in groups), min(g.block_size for g in groups)
    return Grouping(tuple(groups), most, least, block_bytes)


def _token_bytes(group: KVGroup) -> int:
    return ceil_div(group.bytes_per_token, group.layers)


def _keeps_all(group: KVGroup) -> bool:
    return group.kind in ("full", "mla") and group.chunk_tokens is None


def _kept(group: KVGroup) -> tuple[object, ...]:
    """Properties that layers of one group share: kind, window, chunk, bytes of a state."""
    kind = "full" if group.kind == "mla" else group.kind
    state = ceil_div(group.state_bytes, group.layers)
    return kind, group.window_tokens, group.chunk_tokens, state


def _beside_states(layout: KVLayout, block_size: int, exports_states: bool) -> int:
    """Tokens in a block of a hybrid model's attention layers, grown until the largest page holds a
    recurrent state.
    """
    token = max(_token_bytes(group) for group in layout.groups)
    state = max(ceil_div(group.state_bytes, group.layers) for group in layout.groups)
    if not state or not token:
        return block_size
    latent = any(group.kind == "mla" for group in layout.groups)
    step = max(block_size, MLA_GRANULARITY) if latent else block_size
    if exports_states:
        step = lcm(step, EXPORT_GRANULARITY)
    return max(block_size, step * ceil_div(state, token * step))


def _dealt(
    group: KVGroup, size: int, block_size: int, page_bytes: int, bucket: int
) -> list[BlockGroup]:
    """`group` split into the fewest parts of at most `size` layers, dealt out round-robin."""
    num_parts = ceil_div(group.layers, size)
    parts, before = [], 0
    for part in range(num_parts):
        layers = dealt(group.layers, part, num_parts)
        after = before + layers
        slot, state = (
            total * after // group.layers - total * before // group.layers
            for total in (group.bytes_per_token, group.state_bytes)
        )
        drafts = layers - dealt(group.layers - group.draft_layers, part, num_parts)
        parts.append(
            BlockGroup(
                group.kind,
                layers,
                slot,
                group.window_tokens,
                state,
                drafts,
                block_size,
                (page_bytes,),
                bucket,
                group.chunk_tokens,
            )
        )
        before = after
    return parts
