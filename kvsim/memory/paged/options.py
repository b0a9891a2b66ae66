"""The options of paged KV memory, and the allocator that they build."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kvsim.layout import KVLayout
from kvsim.memory.allocator import Allocator
from kvsim.memory.options import AllocatorOptions, MemorySpec, Removal, StoreKind
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.assembly import PagedSettings
from kvsim.memory.paged.block_shape import BlockShape
from kvsim.memory.paged.eviction import EVICTION_POLICIES
from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.memory.paged.refusals import Asked, check
from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.units import GIB
from kvsim.support.parts import DRAFTS
from kvsim.vllm.grouping import Grouping, group_layers, is_uniform, one_table
from kvsim.vllm.rules import BlockRules
from kvsim.vllm.versions import NEWEST

AnyEvictionPolicy = Annotated[EvictionPolicy, OneOf(EVICTION_POLICIES, "allocator.eviction_policy")]
RetentionTokens = Annotated[int, Field(ge=0, le=1 << 40)]


class Paged(AllocatorOptions):
    """Blocks out of one pool. Knobs by vLLM's names.

    block_size: tokens a block holds. enable_prefix_caching: keep finished blocks for later hits.
        Not given: with recurrent layers since vLLM 0.28 alone, else always.
    watermark: share of the pool that must stay free when a request is admitted while others run.
        Not given: the scheduler's version decides, 0.01 under vllm-v0 and 0 since.
    sharing: how the n samples of a request share its prompt: "cache", through the prefix cache, or
        "copy-on-write", forked from one block table. If it is not given, the scheduler's version
        decides: copy-on-write under vllm-v0, the cache since.
    host_cache_gib: of host memory for content evicted from the device.
    eviction_policy: which content of the prefix cache is evicted first when blocks run out. Not
        given: the least recently used ("lru"). vLLM has no other.
    disable_hybrid_kv_cache_manager: layers with a window keep every token.
    prefix_cache_retention_interval: of layers with a window, how often in tokens what a later
        request needs to continue there is kept: every N tokens; 0, nowhere but at the end of each
        prompt and where prefixes were seen to part; "none", everywhere (vLLM's null). Not given: 0,
        as vLLM 0.33 serves; versions before keep all, and those before 0.23 know no other way.
    prefix_match_unit: tokens after which prefixes are compared, a divisor of every block's size.
        Where recurrent states are kept, hits then end at multiples of it inside their long blocks;
        not given: at blocks alone.
    prefill_checkpoint_alignment: the prefill kernel of recurrent layers writes a state at multiples
        of this number of tokens within a chunk. FlashInfer's gated delta net does so on Hopper and
        Blackwell. Blocks are then multiples of 64 tokens. Not given: the kernel writes none within
        a chunk, and chunks are cut where a state is kept.

    Layers with a window or a recurrent state get block tables of their own. A block that must hold
    a recurrent state grows to a multiple of block_size. If a token takes fewer bytes than in other
    layers, the multiple is one that has as many bytes as theirs.
    """

    block_size: int = Field(16, ge=1, le=1 << 20)
    enable_prefix_caching: bool = True
    watermark: float | None = Field(None, ge=0.0, lt=1.0)
    sharing: Literal["cache", "copy-on-write"] | None = None
    host_cache_gib: float | None = Field(None, gt=0)
    eviction_policy: AnyEvictionPolicy | None = None
    disable_hybrid_kv_cache_manager: bool = False
    prefix_cache_retention_interval: RetentionTokens | Literal["none"] | None = None
    prefix_match_unit: int | None = Field(None, ge=1, le=1 << 20)
    prefill_checkpoint_alignment: int | None = Field(None, ge=1, le=1 << 20)

    @property
    def hinted(self) -> bool:
        return self.eviction_policy is not None and self.eviction_policy.hinted

    @model_validator(mode="after")
    def _host_cache_is_a_prefix_cache(self) -> Self:
        if self.host_cache_gib is not None:
            if not self.enable_prefix_caching:
                raise ValueError("host_cache_gib changes nothing without enable_prefix_caching")
            if self.sharing == "copy-on-write":
                raise ValueError("host_cache_gib goes with sharing through the cache")
        return self

    @model_validator(mode="after")
    def _eviction_is_of_a_prefix_cache(self) -> Self:
        if self.eviction_policy is not None and not self.enable_prefix_caching:
            raise ValueError("eviction_policy changes nothing without enable_prefix_caching")
        return self

    @property
    def store(self) -> StoreKind | None:
        """See `AllocatorOptions.store`; None with a host tier, which no store loads from."""
        return "blocks" if self.host_cache_gib is None else None

    @property
    def serves(self) -> frozenset[str]:
        return frozenset((DRAFTS,))

    @property
    def exports_states(self) -> bool:
        """Whether prefill writes states within chunks, for which the engine plans blocks."""
        return self.prefill_checkpoint_alignment is not None

    def grouping(self, layout: KVLayout, rules: BlockRules = NEWEST.blocks) -> Grouping:
        """The KV cache groups of a model's layers and their block sizes."""
        return group_layers(
            layout,
            self.block_size,
            commonest_sizes_groups=rules.commonest_sizes_groups,
            packing=rules.packing,
            exports_states=self.exports_states,
        )

    def build(self, memory: MemorySpec) -> Allocator:
        several = self._has_several_tables(memory)
        set_keys = frozenset(self.model_fields_set)
        caches, keeps = self._caches(memory), several and self._keeps_states(memory)
        check(Asked(dict(self), set_keys, memory, several, caches, keeps))
        if several:
            grouping = memory.plan or self.grouping(memory.layout, memory.rules)
            settings = PagedSettings(
                caching=caches,
                watermark=self.watermark,
                retention_tokens=self._retention(memory.rules),
                checkpoint_alignment=self.prefill_checkpoint_alignment,
                eviction=self.eviction_policy,
                match_unit=self.prefix_match_unit,
            )
            return PagedAllocator(memory, self._shape(memory, grouping), grouping, settings)
        rules, host_gib = memory.rules, self.host_cache_gib
        forks = self.sharing == "copy-on-write"
        if self.sharing is None and host_gib is None:
            forks = rules.forks
        grouping = one_table(memory.layout, self.block_size)
        settings = PagedSettings(
            caching=self.enable_prefix_caching,
            watermark=self.watermark,
            forks=forks,
            host_cache_bytes=None if host_gib is None else int(host_gib * GIB),
            eviction=self.eviction_policy,
        )
        return PagedAllocator(memory, self._shape(memory, grouping), grouping, settings)

    def _shape(self, memory: MemorySpec, grouping: Grouping) -> BlockShape:
        """The pool divided into blocks for these groups."""
        null_blocks = memory.rules.null_blocks
        return BlockShape.of(memory, grouping.block_size, grouping.block_bytes, null_blocks)

    def resolved(self, memory: MemorySpec) -> Self:
        """A copy with the prefix cache disabled if the model has recurrent states and the version
        does not cache them by default.
        """
        if not self._has_several_tables(memory) or self._caches(memory):
            return self
        return self.model_copy(update={"enable_prefix_caching": False})

    def removals(self) -> Iterator[Removal]:
        yield Removal(("overprovisioned", "reserved"), self.model_copy(update={"block_size": 1}))

    def _has_several_tables(self, memory: MemorySpec) -> bool:
        """Whether there are several groups of layers, each with its own block tables."""
        windows = not self.disable_hybrid_kv_cache_manager
        return memory.rules.several_tables and not is_uniform(memory.layout, windows=windows)

    def _caches(self, memory: MemorySpec) -> bool:
        """Whether prefixes are cached: by the option; for recurrent layers only in versions that
        cache states.
        """
        recurrent = any(group.state_bytes for group in memory.layout.groups)
        by_default = memory.layout.bytes_per_token and (memory.rules.caches_states or not recurrent)
        if not by_default and "enable_prefix_caching" not in self.model_fields_set:
            return False
        return self.enable_prefix_caching and not (recurrent and not memory.rules.keeps_states)

    def _keeps_states(self, memory: MemorySpec) -> bool:
        """Whether the model has recurrent states that are cached."""
        return self._caches(memory) and any(g.state_bytes for g in memory.layout.groups)

    def _retention(self, rules: BlockRules) -> int | None:
        """Tokens between the retained positions of windows and states; None: all positions are
        retained.
        """
        interval = self.prefix_cache_retention_interval
        if interval is None:
            return rules.default_retention
        return None if interval == "none" else interval
