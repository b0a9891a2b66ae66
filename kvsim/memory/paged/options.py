"""The options of paged KV memory, and which of its allocators they ask for.

paged.py is the common case; what differs from it has a file of its own: another version (paged_v0),
several groups of layers (hybrid), forked samples (sharing), a tier in host memory (host_tier).
"""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from kvsim.memory.allocator import AllocatorOptions, MemorySpec, Removal, StoreKind
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.groups.allocator import HybridAllocator
from kvsim.memory.paged.groups.grouping import is_uniform
from kvsim.memory.paged.host_tier import HostTierAllocator, HostTierV0Allocator
from kvsim.memory.paged.sharing import CopyOnWriteAllocator, CopyOnWriteV0Allocator
from kvsim.memory.paged.v0 import PagedV0Allocator
from kvsim.plumbing.errors import InputError


class Paged(AllocatorOptions):
    """Blocks out of one pool. Knobs by vLLM's names.

    block_size: tokens a block holds. enable_prefix_caching: keep finished blocks for later hits.
    watermark: share of the pool that must stay free when a request is admitted beside others;
        not given: the scheduler's version decides, 0.01 under vllm-v0 and 0 since.
    sharing: how the n samples of a request share its prompt: "cache", through the prefix cache, or
        "copy-on-write", forked from one block table (sharing.py); not given: the scheduler's
        version decides, copy-on-write under vllm-v0 and the cache since.
    host_cache_gib: of host memory for content evicted from the device (host_tier.py).
    disable_hybrid_kv_cache_manager: layers with a window keep every token.

    Layers with a window or a recurrent state get block tables of their own (hybrid.py). A block
    that must hold a recurrent state grows to a multiple of block_size.
    """

    block_size: int = Field(16, ge=1, le=1 << 20)
    enable_prefix_caching: bool = True
    watermark: float | None = Field(None, ge=0.0, lt=1.0)
    sharing: Literal["cache", "copy-on-write"] | None = None
    host_cache_gib: float | None = Field(None, gt=0)
    disable_hybrid_kv_cache_manager: bool = False

    @model_validator(mode="after")
    def _host_cache_is_a_prefix_cache(self) -> Self:
        if self.host_cache_gib is not None:
            if not self.enable_prefix_caching:
                raise ValueError("host_cache_gib changes nothing without enable_prefix_caching")
            if self.sharing == "copy-on-write":
                raise ValueError("host_cache_gib goes with sharing through the cache")
        return self

    @property
    def store(self) -> StoreKind | None:
        """No store loads content from a tier of its own."""
        return "blocks" if self.host_cache_gib is None else None

    def build(self, memory: MemorySpec) -> "PagedAllocator":
        uniform = is_uniform(memory.layout, windows=not self.disable_hybrid_kv_cache_manager)
        v0 = memory.semantics == "vllm-v0"
        if self.host_cache_gib is not None and (uniform or v0):
            return HostTierV0Allocator(self, memory) if v0 else HostTierAllocator(self, memory)
        if v0:
            forks = self.sharing != "cache"
            return CopyOnWriteV0Allocator(self, memory) if forks else PagedV0Allocator(self, memory)
        if not uniform:
            self._refuse_several_groups()
            return HybridAllocator(self, memory)
        if self.sharing == "copy-on-write":
            return CopyOnWriteAllocator(self, memory)
        return PagedAllocator(self, memory)

    def removals(self) -> Iterator[Removal]:
        yield Removal(("overprovisioned", "reserved"), self.model_copy(update={"block_size": 1}))

    def _refuse_several_groups(self) -> None:
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
