"""The options of KV memory with a radix tree, and the allocator that they build."""

from collections.abc import Collection, Iterator
from typing import Self

from pydantic import Field, field_validator, model_validator

from kvsim.memory.options import AllocatorOptions, MemorySpec, Removal
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.hicache.options import (
    DEFAULT_RATIO,
    MOST_GB,
    THRESHOLDS,
    HicacheStorageConfig,
    PrefetchPolicy,
    Speed,
    WritePolicy,
)
from kvsim.memory.radix_hybrid.build import StateFlags, WindowFlags, state_pools, window_pools
from kvsim.memory.radix_hybrid.strategy import StrategyFlag, resolved
from kvsim.plumbing.errors import InputError
from kvsim.support.parts import ServerParts
from kvsim.support.table import check

# Kind of layers, what the keys of their pool have in their names, and what users call the layers.
_SECOND_POOLS = (
    ("sliding", "swa", "sliding windows"),
    ("recurrent", "mamba", "recurrent layers"),
)
_OF_HICACHE = ("enable_hierarchical_cache", "hicache_", "storage_")
# Which states the tree keeps.
_OF_THE_TREE = (
    "mamba_radix_cache_strategy",
    "mamba_track_interval",
    "mamba_max_states_per_path",
)


class Radix(AllocatorOptions):
    """SGLang's pool of pages with a radix tree over tokens (0.5.23). Knobs by its names.

    page_size: tokens a page holds. disable_radix_cache: nothing is kept for later hits.

    enable_hierarchical_cache: host memory keeps KV that the device evicts (HiCache). It holds
    hicache_ratio tokens (2) for each token of the device, or hicache_size GB (1e9 bytes) per GPU.
    hicache_write_policy: when KV is copied to host memory. With "write_through" it is when a
    request has computed it. With "write_through_selective" it is when a second request hits it.
    With "write_back" it is when the device evicts it, and the scheduler waits.
    hicache_storage_backend: any name adds an L3 storage after host memory, and all KV that reaches
    host memory is written to it. hicache_storage_prefetch_policy: what admission does with a
    request while its storage lookup is in flight. hicache_storage_backend_extra_config: more keys
    of it. They are prefetch_threshold (256), prefetch_timeout_base (1),
    prefetch_timeout_per_ki_token (0.25), retry_poll_interval (8) and retry_max_attempts (8).
    kvsim's own: hicache_write_gb_per_s and hicache_load_gb_per_s, of each direction; the device's
    host link unless given. hicache_copy_latency_us: before each copy, and before each layer of a
    load. storage_read_gb_per_s, storage_write_gb_per_s: 5 unless given. storage_latency_us: of each
    call, 100 unless given. hicache_storage_shared: all replicas of a fleet find what one has
    written, each at these speeds.

    Models with sliding windows have a second pool for them, of swa_full_tokens_ratio tokens for
    each of the first. swa_eviction_interval: slots that must have left the window before they are
    freed together (SGLANG_SWA_EVICTION_INTERVAL). release_prefill_swa: a request that decoded a
    whole window frees the windows of its prompt (SGLANG_OPT_RELEASE_PREFILL_SWA).

    Models with recurrent layers have a second pool of max_mamba_cache_size states. If it is not
    given, the pool has 0.9 bytes for each byte of KV. Where mem_fraction_static sizes the pool,
    mamba_full_memory_ratio of [memory] replaces the 0.9. mamba_radix_cache_strategy: where
    states are cached; "auto" is "extra_buffer" where steps overlap or pages hold several tokens,
    else "no_buffer". mamba_track_interval: tokens of output from one state to the next.
    mamba_max_states_per_path: -1 for no limit.
    """

    enable_hierarchical_cache: bool = False
    hicache_ratio: float | None = Field(None, gt=0, le=1e6)
    hicache_size: float | None = Field(None, gt=0, le=MOST_GB)
    hicache_write_policy: WritePolicy = "write_through"
    hicache_storage_backend: str | None = None
    hicache_storage_prefetch_policy: PrefetchPolicy = "timeout"
    hicache_storage_backend_extra_config: HicacheStorageConfig = HicacheStorageConfig()
    hicache_storage_shared: bool = False
    hicache_write_gb_per_s: float | None = Speed
    hicache_load_gb_per_s: float | None = Speed
    hicache_copy_latency_us: float = Field(10.0, ge=0, le=1e9)
    storage_read_gb_per_s: float | None = Speed
    storage_write_gb_per_s: float | None = Speed
    storage_latency_us: float | None = Field(None, ge=0, le=1e9)
    page_size: int = Field(1, ge=1, le=1 << 20)
    disable_radix_cache: bool = False
    swa_full_tokens_ratio: float = Field(0.8, gt=0, le=1)
    swa_eviction_interval: int = Field(128, ge=1)
    release_prefill_swa: bool = False
    max_mamba_cache_size: int | None = Field(None, ge=1)
    mamba_radix_cache_strategy: StrategyFlag = "auto"
    mamba_track_interval: int = Field(256, ge=1)
    mamba_max_states_per_path: int = Field(-1, ge=-1)

    @model_validator(mode="after")
    def _keys_that_do_something(self) -> Self:
        keys = sorted(key for key in type(self).model_fields if key.startswith(_OF_HICACHE))
        changed = self.changed(keys)
        if changed and not self.enable_hierarchical_cache:
            raise ValueError(f"{changed[0]} changes nothing without enable_hierarchical_cache")
        if self.hicache_ratio is not None and self.hicache_size is not None:
            raise ValueError("give at most one of hicache_ratio and hicache_size")
        storage = [key for key in changed if "storage" in key]
        if storage and self.hicache_storage_backend is None:
            raise ValueError(f"{storage[0]} changes nothing without hicache_storage_backend")
        if self.hicache_storage_prefetch_policy != "timeout":
            self._check_no_time_is_set()
        return self

    def _check_no_time_is_set(self) -> None:
        extra = self.hicache_storage_backend_extra_config
        for key in extra.changed(type(extra).model_fields):
            if "timeout" in key:
                raise ValueError(
                    f"{key} changes nothing unless hicache_storage_prefetch_policy is timeout"
                )

    def host_tokens(self, pool_tokens: int, token_bytes: int, page_size: int) -> int:
        """Size of the host pool in tokens, whole pages (mem_cache/pool_host/base.py)."""
        if self.hicache_size is not None:
            tokens = int(self.hicache_size * 1e9 // token_bytes)
        else:
            ratio = DEFAULT_RATIO if self.hicache_ratio is None else self.hicache_ratio
            tokens = int(pool_tokens * ratio)
        return (tokens // page_size + 1) * page_size

    @field_validator("mamba_max_states_per_path")
    @classmethod
    def _some(cls, states: int) -> int:
        if not states:
            raise ValueError("at least 1, or -1 for no limit")
        return states

    @property
    def page_tokens(self) -> int:
        return self.page_size

    @property
    def hierarchical(self) -> bool:
        return self.enable_hierarchical_cache

    @property
    def shared_key(self) -> str:
        return "hicache_storage_shared" if self.hicache_storage_shared else ""

    @property
    def write_threshold(self) -> int | None:
        """Number of insertions after which a node is copied to host memory; None: it is copied when
        evicted.
        """
        return THRESHOLDS[self.hicache_write_policy]

    def build(self, memory: MemorySpec) -> RadixAllocator:
        kinds = {group.kind for group in memory.layout.groups}
        odd = kinds - {"full", "mla"}
        self._check_used(kinds)
        parts = ServerParts(
            allocator="radix",
            hicache=self.enable_hierarchical_cache,
            caches=not self.disable_radix_cache,
            layers=frozenset("windows" if kind == "sliding" else "states" for kind in odd),
        )
        check(parts)
        if "sliding" in kinds:
            return self._over_windows(memory)
        beside = self.disable_radix_cache and memory.states is not None
        if "recurrent" in kinds and not (beside and memory.layout.bytes_per_token):
            return self._over_states(memory)
        token_bytes = memory.layout.bytes_per_token
        self._check_page(memory.capacity_bytes // token_bytes)
        if self.enable_hierarchical_cache:
            pool_tokens = memory.capacity_bytes // (token_bytes * self.page_size) * self.page_size
            return RadixAllocator(
                memory.capacity_bytes,
                token_bytes,
                self.page_size,
                host_tokens=self.host_tokens(pool_tokens, token_bytes, self.page_size),
                write_threshold=self.write_threshold,
            )
        return RadixAllocator(
            memory.capacity_bytes,
            token_bytes,
            self.page_size,
            caching=not self.disable_radix_cache,
            max_sequences=memory.states,
        )

    def _check_used(self, kinds: Collection[str]) -> None:
        """InputError for a key without effect: of a second pool that the model does not have, or of
        a disabled tree.
        """
        for kind, word, layers in _SECOND_POOLS:
            if kind not in kinds:
                names = (name for name in type(self).model_fields if word in name)
                self.refuse_idle("allocator", names, f"the model has no {layers}")
        if self.disable_radix_cache:
            self.refuse_idle(
                "allocator",
                _OF_THE_TREE,
                "disable_radix_cache = true, so that no state is kept",
                "leave one of the two out",
            )

    def _over_windows(self, memory: MemorySpec) -> RadixAllocator:
        pools = window_pools(memory, self.page_size, self.swa_full_tokens_ratio)
        self._check_page(pools.tokens)
        flags = WindowFlags(
            self.page_size,
            self.swa_eviction_interval,
            drops_locks=self.release_prefill_swa,
            caching=not self.disable_radix_cache,
        )
        return pools.over_windows(memory, flags)

    def _over_states(self, memory: MemorySpec) -> RadixAllocator:
        pools = state_pools(memory, self.page_size, self.max_mamba_cache_size)
        self._check_page(pools.tokens)
        overlaps = memory.hash_lag > 0
        flag, alone = self.mamba_radix_cache_strategy, not memory.layout.bytes_per_token
        strategy = resolved(flag, self.page_size, overlaps=overlaps, alone=alone)
        if strategy == "no_buffer" and not self.disable_radix_cache:
            self.refuse_idle(
                "allocator",
                ("mamba_track_interval",),
                "the strategy is no_buffer, which keeps states at the ends of chunks and requests",
                "leave it out, or take extra_buffer",
            )
        flags = StateFlags(
            self.page_size,
            strategy,
            self.mamba_track_interval,
            self.mamba_max_states_per_path,
            caching=not self.disable_radix_cache,
        )
        return pools.over_states(memory, flags)

    def _check_page(self, tokens: int) -> None:
        if tokens < self.page_size:
            raise InputError(
                "the KV pool holds no page",
                where="allocator.page_size",
                value=self.page_size,
                limit=f"{tokens} tokens of pool",
                remedy="give the pool more memory or take smaller pages",
            )

    def removals(self) -> Iterator[Removal]:
        yield Removal(("overprovisioned", "reserved"), self.model_copy(update={"page_size": 1}))
