"""The KV store for an allocator, chosen by the allocator's options."""

from typing import Protocol, cast

from kvsim.backend.shape import Shape
from kvsim.backend.stores.buffers import BufferStore
from kvsim.backend.stores.contiguous import ContiguousStore
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.stores.store import TensorStore
from kvsim.memory import ALLOCATORS
from kvsim.memory.allocator import Allocator
from kvsim.memory.options import AllocatorOptions, StoreKind
from kvsim.plumbing.errors import InputError
from kvsim.vllm.rules import FIRST_BLOCK

WORDS: dict[StoreKind, str] = {
    "blocks": "one pool of blocks",
    "slots": "one address space of slots",
    "buffers": "a tensor a sequence, out of torch's allocator",
}


class _HasBlocks(Protocol):
    block_size: int


def store_kind(options: AllocatorOptions) -> StoreKind:
    """The kind of store for the allocator of `options`; InputError where there is none."""
    if options.store is None:
        raise InputError(
            "no backend store keeps memory in this way",
            where="allocator.kind",
            value=ALLOCATORS.name_of(options),
            remedy="choose blocks without a tier in host memory, or one buffer a sequence",
        )
    return options.store


def build_store(kind: StoreKind, allocator: Allocator, shape: Shape, device: str) -> TensorStore:
    """An empty store with a place for every block or slot of the allocator's pool."""
    slots = allocator.capacity_bytes // allocator.token_bytes
    if kind == "blocks":
        size = cast("_HasBlocks", allocator).block_size
        # Numbers may begin after a null block that the pool does not pay for.
        return PagedStore(shape, slots // size + FIRST_BLOCK, size, device)
    return ContiguousStore(shape, slots, device) if kind == "slots" else BufferStore(shape, device)


def with_host_pool(store: TensorStore, num_slots: int) -> TensorStore:
    """The store with an added pool in host memory, of `num_slots` slots of one block each;
    InputError if the store has no blocks.
    """
    if not isinstance(store, PagedStore):
        raise InputError(
            "a tier needs blocks of paged memory",
            where="allocator.kind",
            remedy='kind = "paged"',
        )
    return store.with_host_pool(num_slots)
