"""The parts that a paged allocator is put together from."""

from typing import NamedTuple

from kvsim.memory.left_behind import LeftBehind
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.admission import AdmissionNeeds
from kvsim.memory.paged.behind import BehindInBlocks
from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.decoders import Decoders
from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.memory.paged.forks import Forks
from kvsim.memory.paged.groups.cache import GroupsCache
from kvsim.memory.paged.groups.decoding import Decoding
from kvsim.memory.paged.groups.needs import Needs
from kvsim.memory.paged.groups.places import Places
from kvsim.memory.paged.groups.retention import check_interval
from kvsim.memory.paged.groups.rooms import Rooms
from kvsim.memory.paged.groups.state_chunks import StateChunks
from kvsim.memory.paged.groups.store import store_of
from kvsim.memory.paged.host_tier import HostTier
from kvsim.memory.paged.lookahead import Lookahead
from kvsim.memory.paged.shape import BlockShape
from kvsim.vllm.grouping import Grouping, states_at_once
from kvsim.vllm.sizes import Sizes


class PagedSettings(NamedTuple):
    """What is asked of a paged allocator.

    caching: finished blocks are kept for later hits. watermark: share of the pool that an admission
    leaves free; None: what the rules say. forks: samples share their prompt by copy on write.
    host_cache_bytes: of host memory for content evicted from the device. retention_tokens:
    prefix_cache_retention_interval (see retention.py). checkpoint_alignment: the prefill kernel
    writes states out within a chunk, so many tokens or a multiple behind its start. eviction: which
    content goes first; None: the least recently used. match_unit: tokens after which prefixes are
    compared; None: a block's.
    """

    caching: bool
    watermark: float | None = None
    forks: bool = False
    host_cache_bytes: int | None = None
    retention_tokens: int | None = None
    checkpoint_alignment: int | None = None
    eviction: EvictionPolicy | None = None
    match_unit: int | None = None


class Assembly:
    """The parts, each as its own module says. one_table: all layers have one table, which keeps
    every token. has_states: some layers are recurrent.
    """

    def __init__(
        self, memory: MemorySpec, shape: BlockShape, grouping: Grouping, settings: PagedSettings
    ) -> None:
        rules, drafter, caching = memory.rules, memory.speculation, settings.caching
        groups, lag = grouping.groups, memory.hash_lag
        places = Places.of(rules, drafter)
        unit = settings.match_unit if caching else None
        self.sizes = sizes = Sizes.of(groups, unit, caching=caching, rules=rules)
        check_interval(settings.retention_tokens, sizes.whole)
        # What is known counts from hit to hit, but for drafts, with which some know more.
        step = sizes.whole if drafter is None and not sizes.inner else sizes.unit
        self.has_states = any(group.state_bytes for group in groups)
        self.one_table = len(groups) == 1 and not self.has_states and not groups[0].window_tokens
        self.host: HostTier | None = None
        if settings.host_cache_bytes is not None:
            self.host = HostTier(settings.host_cache_bytes, shape.block_bytes)
        self.pool, self.names, self.tables = store_of(
            memory,
            shape,
            groups,
            sizes,
            places,
            step,
            caching=caching,
            retention_tokens=settings.retention_tokens,
            eviction=settings.eviction,
            host=self.host,
            forks=settings.forks,
            checkpoints=settings.checkpoint_alignment is not None,
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
        self.cache = GroupsCache(
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
        self.rooms = Rooms(groups, sizes)
        self.decoders = Decoders(sizes.unit)
        self.forks: Forks | None = None
        if settings.forks:
            assert isinstance(self.pool, BlockPool)
            size, slot_bytes = shape.block_size, shape.slot_bytes
            self.forks = Forks(self.pool, self.tables, self.rooms, self.decoders, size, slot_bytes)
        self.behind: BehindInBlocks | None = None
        if self.one_table and (left := LeftBehind(memory.layout)):
            self.behind = BehindInBlocks(left, self.tables, self.decoders)
        self.decoding = Decoding(
            shape,
            self.pool,
            self.tables,
            self.rooms,
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
        needs = Needs(
            memory,
            self.names,
            groups,
            states_at_once(self.drafts.tokens, caching=caching, exports=exports),
            self.drafts.tokens,
            self.drafts.redrafted,
            sizes.aligned if sizes.inner else None,
        )
        share = rules.default_watermark if settings.watermark is None else settings.watermark
        self.needs = AdmissionNeeds(
            rules,
            shape,
            self.pool,
            needs,
            self.cache,
            self.drafts,
            self.chunks,
            self.forks,
            int(share * shape.num_blocks),
            one_table=self.one_table,
        )
