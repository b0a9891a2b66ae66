"""KV memory as the device's own allocator counts it."""

from typing import NamedTuple

import torch

from kvsim.backend.stores.store import Store


class MemoryCount(NamedTuple):
    """Bytes asked of the allocator, given out by it, and taken by it from the device."""

    store_requested_bytes: int
    store_allocated_bytes: int
    store_reserved_bytes: int


class StoreMemory:
    """Watches a store on a device. On a GPU it reads the books of torch's caching allocator and
    leaves out what they held beside the store when the watch began (the weights); on a CPU, for
    which torch keeps no books, it counts the store's own bytes.
    """

    def __init__(self, store: Store, device: str) -> None:
        self._store = store
        self._device = device
        self._on_gpu = device.startswith("cuda")
        held = store.held_bytes
        self.beside = MemoryCount(*(count - held for count in self._count()))

    def now(self) -> MemoryCount:
        """The count at this moment."""
        pairs = zip(self._count(), self.beside, strict=True)
        return MemoryCount(*(count - beside for count, beside in pairs))

    def _count(self) -> MemoryCount:
        if not self._on_gpu:
            held = self._store.held_bytes
            return MemoryCount(held, held, held)
        stats = torch.cuda.memory_stats(self._device)
        names = ("requested_bytes", "allocated_bytes", "reserved_bytes")
        return MemoryCount(*(int(stats[f"{name}.all.current"]) for name in names))
