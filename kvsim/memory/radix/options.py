"""The options of KV memory by a radix tree, and what they put together."""

from collections.abc import Iterator

from pydantic import Field, field_validator

from kvsim.memory.options import AllocatorOptions, MemorySpec, Removal
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.hicache.allocator import HicacheAllocator
from kvsim.memory.radix_hybrid.build import StateFlags, WindowFlags, state_pools, window_pools
from kvsim.memory.radix_hybrid.state_allocator import StateAllocator
from kvsim.memory.radix_hybrid.strategy import StrategyFlag, resolved
from kvsim.memory.radix_hybrid.window_allocator import WindowAllocator
from kvsim.plumbing.errors import InputError


class Radix(AllocatorOptions):
    """SGLang's pool of pages with a radix tree over tokens (0.5.23). Knobs by its names.

    page_size: tokens a page holds. disable_radix_cache: nothing is kept for later hits.

    Models with sliding windows have a second pool for them, of swa_full_tokens_ratio tokens for
    each of the first. swa_eviction_interval: slots of it are given back once so many have left the
    window (SGLANG_SWA_EVICTION_INTERVAL). release_prefill_swa: who decoded a window's worth leaves
    the windows of its prompt to others (SGLANG_OPT_RELEASE_PREFILL_SWA).

    Models with recurrent layers have a second pool of states: max_mamba_cache_size of them or, not
    given, 0.9 bytes for each byte of KV ([memory] mamba_full_memory_ratio where
    mem_fraction_static sizes the pool). mamba_radix_cache_strategy: where
    states are cached; "auto" is "extra_buffer" where steps overlap or pages hold several tokens,
    else "no_buffer". mamba_track_interval: tokens of output from one state to the next.
    mamba_max_states_per_path: -1 for no limit.
    """

    page_size: int = Field(1, ge=1, le=1 << 20)
    disable_radix_cache: bool = False
    swa_full_tokens_ratio: float = Field(0.8, gt=0, le=1)
    swa_eviction_interval: int = Field(128, ge=1)
    release_prefill_swa: bool = False
    max_mamba_cache_size: int | None = Field(None, ge=1)
    mamba_radix_cache_strategy: StrategyFlag = "auto"
    mamba_track_interval: int = Field(256, ge=1)
    mamba_max_states_per_path: int = Field(-1, ge=-1)

    @field_validator("mamba_max_states_per_path")
    @classmethod
    def _some(cls, states: int) -> int:
        if not states:
            raise ValueError("at least 1, or -1 for no limit")
        return states

    def build(self, memory: MemorySpec) -> RadixAllocator:
        kinds = {group.kind for group in memory.layout.groups}
        if memory.hicache is not None and (self.disable_radix_cache or kinds - {"full", "mla"}):
            raise InputError(
                "a hierarchical cache extends the radix cache of attention layers",
                where="allocator.disable_radix_cache",
                value=self.disable_radix_cache,
                remedy="leave disable_radix_cache out, or the tier",
            )
        if "sliding" in kinds and "recurrent" in kinds:
            raise InputError(
                "the radix tree has one pool beside the pages",
                where="allocator.kind",
                value="radix, with windows and recurrent states",
                remedy="use paged",
            )
        if "sliding" in kinds:
            return self._over_windows(memory)
        if "recurrent" in kinds and not (self.disable_radix_cache and memory.states is not None):
            return self._over_states(memory)
        token_bytes = memory.layout.bytes_per_token
        self._check_page(memory.capacity_bytes // token_bytes)
        if memory.hicache is not None:
            return HicacheAllocator(
                memory.capacity_bytes,
                token_bytes,
                self.page_size,
                host_tokens=memory.hicache.host_tokens,
                write_threshold=memory.hicache.threshold,
            )
        return RadixAllocator(
            memory.capacity_bytes,
            token_bytes,
            self.page_size,
            caching=not self.disable_radix_cache,
            max_sequences=memory.states,
        )

    def _over_windows(self, memory: MemorySpec) -> WindowAllocator:
        pools = window_pools(memory, self.page_size, self.swa_full_tokens_ratio)
        self._check_page(pools.tokens)
        flags = WindowFlags(
            self.page_size,
            self.swa_eviction_interval,
            drops_locks=self.release_prefill_swa,
            caching=not self.disable_radix_cache,
        )
        return pools.over_windows(memory, flags)

    def _over_states(self, memory: MemorySpec) -> StateAllocator:
        pools = state_pools(memory, self.page_size, self.max_mamba_cache_size)
        self._check_page(pools.tokens)
        flags = StateFlags(
            self.page_size,
            resolved(self.mamba_radix_cache_strategy, self.page_size, overlaps=memory.hash_lag > 0),
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
