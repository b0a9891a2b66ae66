"""The options of paged KV memory, and what they put together."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kvsim.layout import KVLayout
from kvsim.memory.allocator import Allocator
from kvsim.memory.options import AllocatorOptions, MemorySpec, Removal, StoreKind
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.counted.allocator import CountedAllocator, counts_suffice
from kvsim.memory.paged.eviction import EVICTION_POLICIES
from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.memory.paged.groups.allocator import GroupsAllocator
from kvsim.memory.paged.groups.shapes import groups_can_be_counted
from kvsim.memory.paged.shape import BlockShape
from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB, ceil_div
from kvsim.vllm.grouping import Grouping, group_layers, is_uniform
from kvsim.vllm.rules import BlockRules
from kvsim.vllm.versions import NEWEST

AnyEvictionPolicy = Annotated[EvictionPolicy, OneOf(EVICTION_POLICIES, "allocator.eviction_policy")]
RetentionTokens = Annotated[int, Field(ge=0, le=1 << 40)]


class Paged(AllocatorOptions):
    """Blocks out of one pool. Knobs by vLLM's names.

    block_size: tokens a block holds. enable_prefix_caching: keep finished blocks for later hits.
    watermark: share of the pool that must stay free when a request is admitted beside others;
        not given: the scheduler's version decides, 0.01 under vllm-v0 and 0 since.
    sharing: how the n samples of a request share its prompt: "cache", through the prefix cache, or
        "copy-on-write", forked from one block table; not given: the scheduler's version decides,
        copy-on-write under vllm-v0 and the cache since.
    host_cache_gib: of host memory for content evicted from the device.
    eviction_policy: which content of the prefix cache goes first when blocks run out; not given:
        the least recently used ("lru"), as vLLM has it, which knows no other.
    disable_hybrid_kv_cache_manager: layers with a window keep every token.
    prefix_cache_retention_interval: of layers with a window, how often in tokens what a later
        request needs to continue there is kept: every N tokens; 0, nowhere but at the end of each
        prompt and where prefixes were seen to part; "none", everywhere (vLLM's null). Not given:
        0, as vLLM 0.33 serves; versions before keep all, and those before 0.23 know no other way.
    prefix_match_unit: tokens after which prefixes are compared, a divisor of every block's size.
        Where recurrent states are kept, hits then end at multiples of it inside their long blocks;
        not given: at blocks alone.
    prefill_checkpoint_alignment: the prefill kernel of recurrent layers can write a state out
        within a chunk, so many tokens or a multiple behind its start (FlashInfer's gated delta net
        on Hopper and Blackwell), which makes blocks multiples of 64 tokens; not given: it cannot,
        and chunks are cut where a state is kept.

    Layers with a window or a recurrent state get block tables of their own. A block that must hold
    a recurrent state grows to a multiple of block_size; where a token takes fewer bytes than in
    other layers, to a multiple that weighs as much as theirs.
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
        """No store loads content from a tier of its own."""
        return "blocks" if self.host_cache_gib is None else None

    @property
    def speculates(self) -> bool:
        return True

    @property
    def exports_states(self) -> bool:
        """Whether prefill writes states out within chunks, which the engine plans blocks for."""
        return self.prefill_checkpoint_alignment is not None

    def grouping(
        self, layout: KVLayout, rules: BlockRules = NEWEST.blocks, *, given_blocks: bool = False
    ) -> Grouping:
        """How it deals the layers of a layout out to groups, where they have tables of their own.
        given_blocks: as in MemorySpec.
        """
        return group_layers(
            layout,
            self.block_size,
            commonest_sizes_groups=rules.commonest_sizes_groups,
            unequal_blocks=rules.unequal_blocks,
            exports_states=self.exports_states and not given_blocks,
        )

    def build(self, memory: MemorySpec) -> Allocator:
        self._refuse_drafts(memory)
        if self.watermark and not memory.rules.knows_watermark:
            raise InputError(
                "not of the scheduler's version",
                where="allocator.watermark",
                value=self.watermark,
                remedy="leave it out",
            )
        if self._has_several_tables(memory):
            self._refuse_kinds(memory)
            self._refuse_several_tables(memory)
            kept, matched = self._keeps_states(memory), self._caches(memory)
            self._refuse_without_states(memory.rules, kept=kept, matched=matched)
            return GroupsAllocator(
                memory,
                self.grouping(memory.layout, memory.rules, given_blocks=memory.given_blocks),
                caching=self._caches(memory),
                watermark=self.watermark,
                retention_tokens=self._retention(memory),
                checkpoint_alignment=self.prefill_checkpoint_alignment,
                eviction=self.eviction_policy,
                match_unit=self.prefix_match_unit,
                counted=groups_can_be_counted(memory),
            )
        self._refuse_without_states(memory.rules, kept=False, matched=False)
        self._refuse_retention(memory)
        rules, host_gib = memory.rules, self.host_cache_gib
        forks = self.sharing == "copy-on-write"
        if self.sharing is None and host_gib is None:
            forks = rules.forks
        slot_bytes = memory.layout.bytes_per_token
        shape = BlockShape.of(memory, self.block_size, slot_bytes, rules.null_blocks)
        plain = host_gib is None and self.eviction_policy is None and not forks
        if plain and counts_suffice(memory):
            return CountedAllocator(
                memory, shape, caching=self.enable_prefix_caching, watermark=self.watermark
            )
        return PagedAllocator(
            memory,
            shape,
            caching=self.enable_prefix_caching,
            watermark=self.watermark,
            forks=forks,
            host_cache_bytes=None if host_gib is None else int(host_gib * GIB),
            eviction=self.eviction_policy,
        )

    def resolved(self, memory: MemorySpec) -> Self:
        """Without a prefix cache where a state is not kept, which is the default there."""
        if not self._has_several_tables(memory) or self._caches(memory):
            return self
        return self.model_copy(update={"enable_prefix_caching": False})

    def removals(self) -> Iterator[Removal]:
        yield Removal(("overprovisioned", "reserved"), self.model_copy(update={"block_size": 1}))

    def _has_several_tables(self, memory: MemorySpec) -> bool:
        """Whether the layers are dealt out to groups that have tables of their own."""
        windows = not self.disable_hybrid_kv_cache_manager
        return memory.rules.several_tables and not is_uniform(memory.layout, windows=windows)

    def _caches(self, memory: MemorySpec) -> bool:
        """Whether prefixes are kept: of a recurrent state only by versions that keep states."""
        recurrent = any(group.state_bytes for group in memory.layout.groups)
        return self.enable_prefix_caching and not (recurrent and not memory.rules.keeps_states)

    def _keeps_states(self, memory: MemorySpec) -> bool:
        """Whether there are recurrent states, and they are kept."""
        return self._caches(memory) and any(g.state_bytes for g in memory.layout.groups)

    def _retention(self, memory: MemorySpec) -> int | None:
        """Tokens between kept places; None: all are."""
        given = self.prefix_cache_retention_interval
        if not memory.rules.knows_retention:
            if given not in (None, "none"):
                raise InputError(
                    f"{memory.rules.name} does not know it, it keeps every block",
                    where="allocator.prefix_cache_retention_interval",
                    value=given,
                    remedy="leave it out",
                )
            return None
        if given is None:
            return memory.rules.default_retention
        if given == "none":
            return None
        return given

    def _refuse_retention(self, memory: MemorySpec) -> None:
        """InputError for an interval where every layer keeps every token (0 and null are taken)."""
        if self._retention(memory):
            raise InputError(
                "no layer has a window or a state of which anything could be left out",
                where="allocator.prefix_cache_retention_interval",
                value=self.prefix_cache_retention_interval,
                remedy="leave it out",
            )

    def _refuse_without_states(self, rules: BlockRules, *, kept: bool, matched: bool) -> None:
        """InputError for what goes with kept states where there are none, with groups whose
        prefixes are matched, or of another version.
        """
        known_to = {
            "prefill_checkpoint_alignment": (rules.writes_inside, kept),
            "prefix_match_unit": (rules.matches_inside, matched),
        }
        for key, (known, there) in known_to.items():
            if there and known:
                continue
            value = getattr(self, key)
            if value is not None:
                raise InputError(
                    "no recurrent state is kept" if known else "not of the scheduler's version",
                    where=f"allocator.{key}",
                    value=value,
                    remedy="leave it out",
                )

    def _refuse_drafts(self, memory: MemorySpec) -> None:
        """InputError for what is not done where tokens are drafted ahead."""
        if memory.speculation is None:
            return
        drafts, one_kind = memory.speculation, len(memory.layout.groups) == 1
        if drafts.drops_last_block and drafts.redrafted_tokens and not one_kind:
            raise InputError(
                "chained modules whose hits lose a block, beside several kinds of layers: each "
                "kind would know another part of a prompt, which is not simulated",
                where="speculative_config.disable_lookahead_block_hashes",
                value=True,
                remedy="leave it out",
            )
        if memory.speculation.drops_last_block and self.prefill_checkpoint_alignment is not None:
            raise InputError(
                "a state written out within a chunk lies a block too far for hits that lose one",
                where="allocator.prefill_checkpoint_alignment",
                value=self.prefill_checkpoint_alignment,
                remedy="leave it out, or speculative_config.disable_lookahead_block_hashes",
            )
        for key, idle in (("sharing", "cache"), ("host_cache_gib", None)):
            value = getattr(self, key)
            if value not in (None, idle):
                raise InputError(
                    "not where tokens are drafted ahead",
                    where=f"allocator.{key}",
                    value=value,
                    remedy="leave it out, or speculative_config",
                )

    def _refuse_kinds(self, memory: MemorySpec) -> None:
        """InputError for kinds of layers that an engine of this version does not start with."""
        rules, groups = memory.rules, memory.layout.groups
        attending = [group for group in groups if not group.state_bytes]
        slots = {ceil_div(group.bytes_per_token, group.layers) for group in attending}
        remedy = "a later version"
        if len(attending) == len(groups):
            remedy += ", or allocator.disable_hybrid_kv_cache_manager = true"
        if len(slots) > 1 and not rules.unequal_blocks:
            raise InputError(
                "it does not start with layers in which a token takes unequally many bytes",
                where="scheduler.semantics",
                value=rules.name,
                remedy=remedy,
            )
        windows = [group for group in attending if group.kind == "sliding"]
        beside_full = len(attending) - len(windows) == len(windows) == 1
        many = len(attending) > 1 and not beside_full
        if many and self._caches(memory) and not rules.any_kinds:
            raise InputError(
                "it matches prefixes of full attention and one other kind of layers at most, and "
                f"does not start with {len(attending)} kinds",
                where="scheduler.semantics",
                value=rules.name,
                remedy=f"{remedy}, or allocator.enable_prefix_caching = false",
            )

    def _refuse_several_tables(self, memory: MemorySpec) -> None:
        """InputError for what block tables in several groups of layers do not have."""
        for key, idle in (("sharing", "cache"), ("host_cache_gib", None)):
            value = getattr(self, key)
            if value not in (None, idle):
                raise InputError(
                    "not for block tables in several groups of layers",
                    where=f"allocator.{key}",
                    value=value,
                    remedy="leave it out, or set disable_hybrid_kv_cache_manager = true",
                )
        if self._caches(memory):
            return
        for key in ("enable_prefix_caching", "eviction_policy"):
            if key in self.model_fields_set and getattr(self, key):
                raise InputError(
                    "a recurrent state is overwritten in every step, no prefix of it is kept",
                    where=f"allocator.{key}",
                    remedy="leave the key out",
                )
