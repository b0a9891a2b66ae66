"""The options of KV memory by a radix tree, and what they put together."""

from collections.abc import Iterator

from pydantic import Field

from kvsim.memory.options import MemorySpec, Removal
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.hicache.allocator import HicacheAllocator
from kvsim.memory.radix.hicache.options import HicacheOptions
from kvsim.plumbing.errors import InputError


class Radix(HicacheOptions):
    """SGLang's pool of pages with a radix tree over tokens (0.5.23). Knobs by its names.

    page_size: tokens a page holds. disable_radix_cache: nothing is kept for later hits.

    enable_hierarchical_cache: what the device evicts is kept in host memory (HiCache), of
    hicache_ratio tokens (2) for each of the device, or of hicache_size GB (1e9 bytes) per GPU.
    hicache_write_policy: KV goes there when a request has computed it, when a second request has
    hit it ("write_through_selective"), or when the device evicts it and the scheduler waits
    ("write_back"). hicache_storage_backend: any name: a storage is behind host memory, and all that
    reaches host memory is written to it. hicache_storage_prefetch_policy: what admission does with
    a request whose lookup there is under way; more in hicache_storage_backend_extra_config
    (prefetch_threshold 256, prefetch_timeout_base 1, prefetch_timeout_per_ki_token 0.25,
    retry_poll_interval 8, retry_max_attempts 8).
    kvsim's own: hicache_write_gb_per_s, hicache_load_gb_per_s, of each direction, the device's host
    link unless given; hicache_copy_latency_us, before each copy, of a load before each layer;
    storage_read_gb_per_s, storage_write_gb_per_s (5 unless given), storage_latency_us (100) of
    each call.
    """

    page_size: int = Field(1, ge=1, le=1 << 20)
    disable_radix_cache: bool = False

    @property
    def page_tokens(self) -> int:
        return self.page_size

    def build(self, memory: MemorySpec) -> RadixAllocator:
        odd = {group.kind for group in memory.layout.groups} - {"full", "mla"}
        if memory.states is not None and self.disable_radix_cache:
            odd.discard("recurrent")  # each sequence has a state in the pool beside this one
        if odd:
            raise InputError(
                "the radix tree holds tokens that every layer keeps",
                where="allocator.kind",
                value=f"radix, with layers of kind {', '.join(sorted(odd))}",
                remedy="use paged",
            )
        token_bytes = memory.layout.bytes_per_token
        if memory.capacity_bytes < self.page_size * token_bytes:
            raise InputError(
                "the KV pool holds no page",
                where="allocator.page_size",
                value=self.page_size,
                limit=f"{memory.capacity_bytes // token_bytes} tokens of pool",
                remedy="give the pool more memory or take smaller pages",
            )
        if self.enable_hierarchical_cache:
            if self.disable_radix_cache or memory.states is not None:
                raise InputError(
                    "a hierarchical cache extends the radix cache of full attention",
                    where="allocator.enable_hierarchical_cache",
                    value="true, without that cache",
                    remedy="leave it out",
                )
            pool_tokens = memory.capacity_bytes // (token_bytes * self.page_size) * self.page_size
            return HicacheAllocator(
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

    def removals(self) -> Iterator[Removal]:
        yield Removal(("overprovisioned", "reserved"), self.model_copy(update={"page_size": 1}))
