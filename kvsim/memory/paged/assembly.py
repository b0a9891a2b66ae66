"""Build a paged allocator from its parts: pool, tables, prefix cache, decoders."""

from typing import NamedTuple

from kvsim.memory.left_behind import LeftBehind
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.admission import AdmissionNeeds, Lookahead
from kvsim.memory.paged.block_keys import BlockNames
from kvsim.memory.paged.block_shape import BlockShape
from kvsim.memory.paged.decoders import Decoders
from kvsim.memory.paged.decoding import Decoding
from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.memory.paged.forks import Forks
from kvsim.memory.paged.group_lookup import kinds_of
from kvsim.memory.paged.host_tier import HostTier
from kvsim.memory.paged.hybrid.checkpoint_rules import CheckpointRules
from kvsim.memory.paged.hybrid.retention import check_interval
from kvsim.memory.paged.hybrid.state_chunks import StateChunks
from kvsim.memory.paged.live_tables import LiveTables
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.prefix_cache import PrefixCache
from kvsim.memory.paged.tables import BlockTables
from kvsim.memory.paged.window_waste import BehindInBlocks
from kvsim.memory.paged.windows import TableShapes
from kvsim.vllm.grouping import Grouping, states_at_once
from kvsim.vllm.sizes import Sizes


class PagedSettings(NamedTuple):
    """Settings of a paged allocator.

    caching: enables the prefix cache. watermark: share of the pool that an admission leaves free;
    None: that of the version's rules. forks: samples share their prompt by copy on write.
    host_cache_bytes: host memory for evicted content. retention_tokens:
    prefix_cache_retention_interval (see retention.py). checkpoint_alignment: the prefill kernel
    writes states within a chunk at multiples of this number of tokens. eviction: policy of the
    prefix cache; None: least recently used. match_unit: tokens between possible ends of hits; None:
    a block's.
    """

    caching: bool
    watermark: float | None = None
    forks: bool = False
    host_cache_bytes: int | None = None
    retention_tokens: int | None = None
    checkpoint_alignment: int | None = None
    eviction: EvictionPolicy | None = None
    match_unit: int | None = None


def blocks_are_counted(memory: MemorySpec) -> bool:
    """Whether blocks are counted without block ids, which is possible if no observer asks for
    ids.
    """
    return memory.unwatched


def blocks_are_single(memory: MemorySpec, sizes: Sizes, settings: PagedSettings) -> bool:
    """Whether each block needs its own record rather than runs of blocks: for eviction policies,
    copies, and hits inside blocks.
    """
    inside = sizes.inner or (memory.speculation is not None and not sizes.same)
    ranked = settings.eviction is not None and settings.eviction.ranks
    return ranked or settings.forks or inside or memory.holds


class Assembly:
    """The parts of one paged allocator, each described in its module. one_table: all layers share
    one table, which keeps every token. has_states: some layers are recurrent.
    """

    def __init__(
        self, memory: MemorySpec, shape: BlockShape, grouping: Grouping, settings: PagedSettings
    ) -> None:
        rules, drafter, caching = memory.rules, memory.speculation, settings.caching
        groups, lag = grouping.groups, memory.hash_lag
        places = CheckpointRules.of(rules, drafter)
        unit = settings.match_unit if caching else None
        self.sizes = sizes = Sizes.of(groups, unit, caching=caching, rules=rules)
        check_interval(settings.retention_tokens, sizes.whole)
        # Known content counts from hit to hit; with drafts some groups know more.
        step = sizes.whole if drafter is None and not sizes.inner else sizes.unit
        self.has_states = any(group.state_bytes for group in groups)
        self.one_table = len(groups) == 1 and not self.has_states and groups[0].kept_tokens is None
        self.host: HostTier | None = None
        if settings.host_cache_bytes is not None:
            self.host = HostTier(settings.host_cache_bytes, shape.block_bytes)
        singly = blocks_are_single(memory, sizes, settings)
        eviction, usable = settings.eviction, shape.usable_blocks
        self.pool = BlockPool(
            usable + 1,
            len(groups),
            tracked=singly or not blocks_are_counted(memory),
            singly=singly,
            blank_first=rules.blank_first,
            eviction=None if eviction is None else eviction.build(usable, shape.block_size),
        )
        if self.host is not None:
            self.pool.on_evict = self.host.offload
        self.names = BlockNames(
            self.pool,
            kinds_of(groups, states_kept=caching, drops=places.drops),
            sizes,
            step,
            settings.retention_tokens,
            places=places,
            late=drafter is None and not singly,
            speculation=drafter,
        )
        self.names.names_private |= memory.holds
        shapes = TableShapes(
            groups, sizes, shape.block_bytes, states_kept=caching, speculation=drafter
        )
        self.tables = BlockTables(
            self.pool, shapes, self.names, retires_behind_gaps=rules.retires_behind_gaps
        )
        self.drafts = Lookahead.of(memory)
        self.chunks: StateChunks | None = None
        if caching and self.has_states:
            self.chunks = StateChunks(
                sizes,
                places,
                settings.checkpoint_alignment,
                every_chunk=settings.retention_tokens != 0,
                cuts_at_blocks=rules.cuts_at_blocks,
                stops_at_hits=rules.stops_at_hits,
            )
        self.cache = PrefixCache(
            self.pool,
            self.names,
            step,
            sizes,
            enabled=caching,
            lag=lag,
            speculation=drafter,
            names_returned=rules.names_returned or lag > 0,
            holds_back=len(groups) == 1,  # as vLLM's coordinator of several groups does not
            host=self.host,
        )
        self.live = LiveTables(memory, self.tables, self.cache, self.names, self.drafts, sizes)
        self.decoders = Decoders(sizes.unit)
        self.forks: Forks | None = None
        if settings.forks:
            size, slot_bytes = shape.block_size, shape.slot_bytes
            self.forks = Forks(self.pool, self.tables, self.decoders, size, slot_bytes)
        windows = LeftBehind(memory.layout)
        self.behind: BehindInBlocks | None = None
        if self.one_table and windows:
            self.behind = BehindInBlocks(windows, self.tables, self.decoders)
        self.decoding = Decoding(
            shape,
            self.pool,
            self.tables,
            self.cache,
            sizes,
            self.decoders,
            self.behind,
            self.forks,
            lag=lag if rules.waits_for_return else 0,
            token_bytes=memory.layout.bytes_per_token,
            spare_block=rules.spare_block,
            ranked=settings.eviction is not None,
        )
        exports = settings.checkpoint_alignment is not None
        share = rules.default_watermark if settings.watermark is None else settings.watermark
        self.needs = AdmissionNeeds(
            memory,
            shape,
            groups,
            sizes,
            self.pool,
            self.cache,
            self.drafts,
            self.chunks,
            self.forks,
            int(share * shape.num_blocks),
            states_at_once(self.drafts.tokens, caching=caching, exports=exports),
            one_table=self.one_table,
        )
