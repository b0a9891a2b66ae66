"""KV memory as the device's own allocator counts it."""

import torch

from kvsim.backend.devices.device import MemoryCount
from kvsim.backend.stores.store import TensorStore


class StoreMemory:
    """Watches a store's part of the device's memory.

    On a GPU that is a pool of its own, so that weights, logits and indices do not count.

    beside: the other memory that torch holds.
    """

    def __init__(self, store: TensorStore, device: str) -> None:
        self._store = store
        self.beside = self._beside(device)

    def now(self) -> MemoryCount:
        """The allocator's byte counts now."""
        return self._store.memory.count(self._store.held_bytes)

    def _beside(self, device: str) -> MemoryCount:
        if not device.startswith("cuda"):
            return MemoryCount(0, 0, 0)
        stats = torch.cuda.memory_stats(device)
        names = ("requested_bytes", "allocated_bytes", "reserved_bytes")
        whole = [int(stats[f"{name}.all.current"]) for name in names]
        pairs = zip(whole, self.now(), strict=True)
        return MemoryCount(*(count - own for count, own in pairs))
