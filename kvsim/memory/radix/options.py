"""The options of KV memory by a radix tree, and what they put together."""

from collections.abc import Iterator

from pydantic import Field

from kvsim.memory.options import AllocatorOptions, MemorySpec, Removal
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.hicache.allocator import HicacheAllocator
from kvsim.plumbing.errors import InputError


class Radix(AllocatorOptions):
    """SGLang's pool of pages with a radix tree over tokens (0.5.23). Knobs by its names.

    page_size: tokens a page holds. disable_radix_cache: nothing is kept for later hits.
    """

    page_size: int = Field(1, ge=1, le=1 << 20)
    disable_radix_cache: bool = False

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
        if memory.hicache is not None:
            if self.disable_radix_cache or memory.states is not None:
                raise InputError(
                    "a hierarchical cache extends the radix cache of attention layers",
                    where="allocator.disable_radix_cache",
                    value=self.disable_radix_cache,
                    remedy="leave disable_radix_cache out, or the tier",
                )
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

    def removals(self) -> Iterator[Removal]:
        yield Removal(("overprovisioned", "reserved"), self.model_copy(update={"page_size": 1}))
