"""What holds the blocks of the groups of layers: a pool, who names its blocks, and tables.

Blocks lie in extents, which carry their numbers where somebody watches; where a rule asks for
single blocks, they are listed one by one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.memory.paged.extent_pool import ExtentPool
from kvsim.memory.paged.groups.extent_names import ExtentNames
from kvsim.memory.paged.groups.extent_tables import ExtentTables
from kvsim.memory.paged.groups.hits import kinds_of
from kvsim.memory.paged.groups.list_names import ListNames
from kvsim.memory.paged.groups.list_tables import ListTables
from kvsim.memory.paged.groups.names import GroupNames
from kvsim.memory.paged.groups.places import Places
from kvsim.memory.paged.groups.tables import GroupTables
from kvsim.memory.paged.host_tier import HostTier
from kvsim.memory.paged.pool import Pool
from kvsim.memory.paged.shape import BlockShape
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.sizes import Sizes


class Store(NamedTuple):
    """See the module."""

    pool: Pool
    names: GroupNames
    tables: GroupTables


def blocks_are_counted(memory: MemorySpec) -> bool:
    """Whether it does not matter which block is whose: nobody watches, and states that no sequence
    needs go back whatever lies between them.
    """
    states = any(group.state_bytes for group in memory.layout.groups)
    return memory.unwatched and (memory.rules.retires_behind_gaps or not states)


def extents_suffice(memory: MemorySpec, sizes: Sizes, *, states_kept: bool, counted: bool) -> bool:
    """Whether no rule asks for a single block."""
    states = any(group.state_bytes for group in memory.layout.groups)
    if sizes.inner or (memory.speculation is not None and (states or not sizes.same)):
        return False
    if states_kept:
        return counted and sizes.same and memory.rules.blank_first
    return memory.rules.blank_first or sizes.same


def store_of(
    memory: MemorySpec,
    shape: BlockShape,
    groups: Sequence[BlockGroup],
    sizes: Sizes,
    places: Places,
    step: int,
    *,
    caching: bool,
    retention_tokens: int | None,
    eviction: EvictionPolicy | None,
    host: HostTier | None,
    forks: bool,
    checkpoints: bool,
) -> Store:
    """step: see `GroupNames`. host: takes what blocks lose. forks: blocks are copied on write.
    checkpoints: prefill writes states out within chunks. The rest: see `PagedAllocator`.
    """
    kinds = kinds_of(groups, states_kept=caching, drops=places.drops)
    states, num_blocks = any(group.state_bytes for group in groups), shape.usable_blocks + 1
    rules, drafter = memory.rules, memory.speculation
    counted = blocks_are_counted(memory) and not checkpoints
    kept, by_blocks = states and caching, eviction is not None or forks
    if not by_blocks and extents_suffice(memory, sizes, states_kept=kept, counted=counted):
        pool = ExtentPool(
            num_blocks, len(groups), tracked=not counted, blank_first=rules.blank_first
        )
        if host is not None:
            pool.on_evict = host.offload
        counting = ExtentNames(
            pool, kinds, sizes, retention_tokens, places=places, late=drafter is None
        )
        made = ExtentTables(
            pool,
            groups,
            sizes,
            shape.block_bytes,
            counting,
            states_kept=caching,
            speculation=drafter,
        )
        return Store(pool, counting, made)
    order = None if eviction is None else eviction.build(shape.usable_blocks, shape.block_size)
    blocks = BlockPool(num_blocks, blank_first=rules.blank_first, eviction=order)
    if host is not None:
        blocks.on_evict = host.offload
    names = ListNames(
        blocks,
        kinds,
        sizes,
        step,
        retention_tokens,
        places=places,
        drafts=drafter is not None,
    )
    tables = ListTables(
        blocks,
        groups,
        sizes,
        shape.block_bytes,
        names,
        states_kept=caching,
        retires_behind_gaps=rules.retires_behind_gaps,
        speculation=drafter,
    )
    return Store(blocks, names, tables)
