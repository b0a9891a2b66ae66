"""A cache as planned: its groups, and how many requests and tokens a number of blocks holds."""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.capacity.planning.groups import CacheGroup, plan_groups
from kvsim.capacity.planning.serving import Serving
from kvsim.capacity.planning.units import Units, plan_units
from kvsim.model.kv_cache import LayerCache
from kvsim.plumbing.units import ceil_div


class CachePlan(NamedTuple):
    """groups: in the engine's order. bytes_per_block: a block of any group, padding included.
    units: of scheduling and hashing. serving: the flags it was made for.
    packed: caches come in blocks of their own sizes.
    """

    groups: tuple[CacheGroup, ...]
    bytes_per_block: int
    units: Units
    serving: Serving
    packed: bool = False

    @property
    def block_size(self) -> int:
        """Tokens in the smallest block; of packed caches in the smallest that keeps every token,
        without any in a window's.
        """
        if not self.packed:
            return min(group.block_size for group in self.groups)
        for kinds in (("full", "mla"), ("sliding",)):
            sizes = [group.block_size for group in self.groups if group.kind in kinds]
            if sizes:
                return min(sizes)
        raise AssertionError("a plan has a group")

    @property
    def mamba_cache_mode(self) -> str:
        """How states are cached: "align" at block boundaries, or "none"."""
        recurrent = any(group.kind == "recurrent" for group in self.groups)
        return "align" if recurrent and self.serving.enable_prefix_caching else "none"

    def num_blocks(self, capacity_bytes: int) -> int:
        """Whole blocks in so many bytes."""
        return capacity_bytes // self.bytes_per_block

    def admission_cap(self, group: CacheGroup, tokens: int) -> int:
        """Blocks that a request of `tokens` tokens can hold in a sliding group."""
        assert group.window_tokens is not None
        seen = group.window_tokens - 1 + self.serving.max_in_flight_tokens
        return ceil_div(min(seen, tokens), group.block_size) + 1

    def held_blocks(self, tokens: int) -> int:
        """Blocks, over all groups, that a request with `tokens` tokens holds at most as it decodes
        and drafts, its prompt computed: what its windows and states needed for that has gone back.
        """
        serving, speculation = self.serving, self.serving.speculation
        drafts = again = 0
        if speculation is not None:
            drafts = serving.drafted_tokens * serving.batches_in_flight
            drafts += speculation.lookahead_slots
            again = speculation.redrafted_tokens
        slots = min(tokens + drafts, max(tokens, serving.max_model_len))
        ahead = serving.batches_in_flight - 1 + drafts + again
        return sum(self._held_in(group, slots, ahead) for group in self.groups)

    def _held_in(self, group: CacheGroup, slots: int, ahead: int) -> int:
        """Of one group. ahead: tokens that it holds besides those of a window and the newest."""
        if group.kind == "recurrent":
            return (2 if self.mamba_cache_mode == "align" else 1) + group.speculative_blocks
        size = group.block_size
        if group.kind == "sliding":
            assert group.window_tokens is not None
            # Wherever it begins.
            return min(ceil_div(slots, size), ceil_div(group.window_tokens - 1 + ahead, size) + 1)
        if group.chunk_tokens is not None:
            return ceil_div(min(slots, group.chunk_tokens + ahead), size)
        return ceil_div(slots, size * self.serving.decode_context_parallel_size)

    def blocks_of(self, tokens: int) -> int:
        """Blocks, over all groups, that a request of `tokens` tokens holds at most."""
        return sum(self._blocks_in(group, tokens) for group in self.groups)

    def _blocks_in(self, group: CacheGroup, tokens: int) -> int:
        if group.kind == "recurrent":
            states = 2 if self.serving.enable_prefix_caching else 1
            return states + group.speculative_blocks + group.checkpoint_blocks
        if group.kind == "sliding":
            return self.admission_cap(group, tokens)
        if group.chunk_tokens is not None:
            held = group.chunk_tokens + self.serving.max_in_flight_tokens
            return ceil_div(min(held, tokens), group.block_size)
        return ceil_div(tokens, group.block_size * self.serving.decode_context_parallel_size)


def plan_cache(
    caches: Sequence[LayerCache], serving: Serving, drafter: Sequence[LayerCache] = ()
) -> CachePlan:
    """The plan for these layers, one of which at least keeps a cache, and a drafter's beside."""
    if serving.speculation is not None:
        serving.speculation.check()
    groups = plan_groups(caches, drafter, serving)
    return CachePlan(
        groups,
        max(group.bytes for group in groups),
        plan_units(groups, serving),
        serving,
        packed=any(cache.own_block for cache in caches),
    )
