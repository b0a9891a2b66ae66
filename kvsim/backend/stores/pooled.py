"""The stores that keep all sequences in one pool of slots, by their names."""

from typing import Literal

from kvsim.backend.shape import Shape
from kvsim.backend.stores.contiguous import ContiguousStore
from kvsim.backend.stores.paged import PagedStore

StoreName = Literal["paged", "contiguous"]
PooledStore = PagedStore | ContiguousStore


def pooled_store(
    name: StoreName, shape: Shape, num_blocks: int, block_size: int, device: str
) -> PooledStore:
    """An empty store of num_blocks * block_size slots."""
    if name == "paged":
        return PagedStore(shape, num_blocks, block_size, device)
    return ContiguousStore(shape, num_blocks * block_size, device)
