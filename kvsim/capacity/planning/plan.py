"""The KV cache as vLLM plans it at its start, and how many requests and tokens its blocks hold."""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.capacity.planning.serving import Serving
from kvsim.capacity.planning.staged import on_stage
from kvsim.model.kv_cache import LayerCache, grouped, widened
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.grouping import BlockGroup, group_layers, states_at_once
from kvsim.vllm.packed import pack

DEFAULT_BLOCK_SIZE = 16
SPARSE_MLA_BLOCK_SIZE = 64
INDEXED_BLOCK_SIZE = 128  # of keys and values with an indexer (models/minimax_m3)


class CachePlan(NamedTuple):
    """The groups of a model's layers under the flags of a server.

    groups: in the engine's order. bytes_per_block: of a block of any group, padding included.
    serving: the flags. packed: caches come in blocks of their own sizes. weights: bytes of a block
    in the layers of each group, by which vLLM before 0.27 counts such blocks; (): all count
    equally.
    """

    groups: tuple[BlockGroup, ...]
    bytes_per_block: int
    serving: Serving
    packed: bool = False
    weights: tuple[int, ...] = ()

    @property
    def block_size(self) -> int:
        """Tokens in the smallest block. For packed caches, only blocks of full-attention groups
        count, or of window groups if there are no others.
        """
        if not self.packed:
            return min(group.block_size for group in self.groups)
        for kinds in (("full", "mla"), ("sliding",)):
            sizes = [group.block_size for group in self.groups if group.kind in kinds]
            if sizes:
                return min(sizes)
        raise AssertionError("a plan has a group")

    @property
    def caches_states(self) -> bool:
        """Whether recurrent states are cached at the ends of blocks (mamba_cache_mode "align")."""
        return self.serving.enable_prefix_caching and any(g.state_bytes for g in self.groups)

    @property
    def padding(self) -> tuple[tuple[int, int], ...]:
        """(padding layers, layers) of each kind of layers with groups that are not all full."""
        if self.packed or len(self.groups) == 1:
            return ()
        layers: dict[int, int] = {}
        for group in self.groups:
            layers[group.bucket] = layers.get(group.bucket, 0) + group.layers
        # Each layer of a group, padding or not, has a page of a block.
        size = self.bytes_per_block // self.groups[0].page_bytes[0]
        return tuple((-own % size, own) for own in layers.values() if own % size)

    def num_blocks(self, capacity_bytes: int) -> int:
        """Whole blocks in `capacity_bytes`."""
        return capacity_bytes // self.bytes_per_block

    def admission_cap(self, group: BlockGroup, tokens: int) -> int:
        """Blocks that vLLM reckons for a request of `tokens` tokens in a sliding group."""
        assert group.window_tokens is not None
        seen = group.window_tokens - 1 + self.serving.max_in_flight_tokens
        return ceil_div(min(seen, tokens), group.block_size) + 1

    def held_blocks(self, tokens: int) -> int:
        """Most blocks, over all groups, of a request with `tokens` tokens while it decodes and
        drafts.

        Its prompt is computed by then, and the blocks that windows and states needed for that are
        freed.
        """
        serving, speculation = self.serving, self.serving.speculation
        drafts = again = 0
        if speculation is not None:
            drafts = serving.drafted_tokens * serving.batches_in_flight
            drafts += speculation.lookahead_slots
            again = speculation.redrafted_tokens
        slots = min(tokens + drafts, max(tokens, serving.max_model_len))
        ahead = serving.batches_in_flight - 1 + drafts + again
        return sum(self._held(group, slots, ahead, exports=False) for group in self.groups)

    def blocks_of(self, tokens: int) -> int:
        """Blocks, over all groups, that vLLM reckons for a request of `tokens` tokens."""
        return sum(self._reckoned(tokens))

    def printed_blocks_of(self, tokens: int) -> int:
        """`blocks_of` as the start-up log counts blocks: by `weights`, one of the first group
        counts 1.
        """
        if not self.weights:
            return self.blocks_of(tokens)
        blocks = zip(self._reckoned(tokens), self.weights, strict=True)
        return ceil_div(sum(count * weight for count, weight in blocks), self.weights[0])

    def _reckoned(self, tokens: int) -> list[int]:
        """Blocks of each group that vLLM reckons for a request of `tokens` tokens."""
        ahead, exports = self.serving.max_in_flight_tokens, self.serving.exports_states
        return [
            self.admission_cap(group, tokens)
            if group.window_tokens is not None
            else self._held(group, tokens, ahead, exports=exports)
            for group in self.groups
        ]

    def _held(self, group: BlockGroup, slots: int, ahead: int, *, exports: bool) -> int:
        """Most blocks of one group. ahead: tokens held besides a window's or chunk's own. exports:
        one block more for a state that prefill writes out.
        """
        serving = self.serving
        if group.kind == "recurrent":
            caching = serving.enable_prefix_caching
            return states_at_once(serving.drafted_tokens, caching=caching, exports=exports)
        if group.window_tokens is None and group.chunk_tokens is None:
            slots = ceil_div(slots, serving.decode_context_parallel_size)
        return group.blocks_at_once(slots, ahead)


def plan_cache(
    caches: Sequence[LayerCache],
    serving: Serving,
    drafter: Sequence[LayerCache] = (),
    held: range | None = None,
) -> CachePlan:
    """The plan for these layers, of which at least one has a cache, and the layers of a drafter.

    held: indices of the layers on a pipeline stage; None: all. Caches in blocks of their own sizes
    are planned for each stage separately.
    """
    if serving.speculation is not None:
        serving.speculation.check()
    if any(cache.own_block for cache in caches):
        if held is not None:
            first, last = held.start, held.stop
            caches, drafter = caches[first:last], drafter[: max(0, last - len(caches))]
        layout = grouped(caches, drafter)
        packed = group_layers(layout, 1, packing=serving.packing)
        parts, _ = pack(layout, serving.packing)
        weights = () if serving.packing == "widest" else tuple(part.bytes for part in parts)
        return CachePlan(packed.groups, packed.block_bytes, serving, True, weights)
    if not serving.gives_chunks_back:
        caches = [cache._replace(chunk_tokens=None) for cache in caches]
    caching, drafted = serving.enable_prefix_caching, serving.drafted_tokens
    caches, drafter = widened(caches, drafted), widened(drafter, drafted)
    grouping = group_layers(
        grouped(caches, drafter, by_page=True),
        _kernel_block_size([*caches, *drafter], serving),
        exports_states=serving.exports_states and caching,
        state_block_size=None if caching else serving.max_model_len,
    )
    if held is not None:
        grouping = on_stage(grouping, caches, drafter, held)
    return CachePlan(grouping.groups, grouping.block_bytes, serving)


def _kernel_block_size(caches: Sequence[LayerCache], serving: Serving) -> int:
    """Tokens in a block before recurrent states enlarge it: as configured, or vLLM's default."""
    if serving.block_size is not None:
        return serving.block_size
    indexed = {cache.kind for cache in caches if cache.index_bytes}
    if "mla" in indexed:
        return SPARSE_MLA_BLOCK_SIZE
    return INDEXED_BLOCK_SIZE if indexed else DEFAULT_BLOCK_SIZE
