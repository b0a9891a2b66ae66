"""What holds the blocks of several groups of layers: a pool, who names its blocks, and tables.

Blocks are counted where nobody can tell those without names apart, and listed elsewhere.
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
from kvsim.memory.paged.groups.window_tables import WindowTables
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


def extents_suffice(memory: MemorySpec, sizes: Sizes, *, states_kept: bool, counted: bool) -> bool:
    """Whether no rule asks for a single block."""
    states = any(group.state_bytes for group in memory.layout.groups)
    if sizes.inner or (memory.speculation is not None and (states or not sizes.same)):
        return False
    if states_kept:
        return counted and sizes.same
    return counted or memory.rules.blank_first or sizes.same


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
    counted: bool,
) -> Store:
    """step: see `GroupNames`. host: takes what blocks lose. forks: blocks are copied on write.
    counted: where no hit ends inside a block. The rest: see `PagedAllocator`.
    """
    kinds = kinds_of(groups, states_kept=caching, drops=places.drops)
    states, num_blocks = any(group.state_bytes for group in groups), shape.usable_blocks + 1
    rules, drafter = memory.rules, memory.speculation
    kept = states and caching
    alone = len(groups) == 1 and not states and groups[0].window_tokens is None
    by_blocks = eviction is not None or host is not None or forks or alone
    if not by_blocks and extents_suffice(memory, sizes, states_kept=kept, counted=counted):
        pool = ExtentPool(
            num_blocks, len(groups), tracked=not counted, blank_first=rules.blank_first
        )
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
        late=not by_blocks and drafter is None and sizes.same and not states,
        drafts=drafter is not None,
    )
    tables = (ListTables if states else WindowTables)(
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
