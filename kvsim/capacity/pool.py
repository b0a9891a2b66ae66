"""The pool of one GPU: how much device memory is left for KV, item by item, in bytes."""

from typing import NamedTuple

from kvsim.capacity.drafter import DrafterCost
from kvsim.capacity.planning import CachePlan
from kvsim.capacity.start_up import StartUp
from kvsim.layout import KVLayout


class Pool(NamedTuple):
    """The KV pool of one GPU, itemised, in bytes.

    sized_by: the option that decided. With gpu_memory_utilization, total = unused + weights +
    activation + other + capacity, and other = non_torch + cuda_graph; otherwise these and unused
    are 0 and the capacity is what was given, whether the device has it or not.
    block_size: tokens a block; num_gpu_blocks: whole blocks in the capacity. The engine_ figures,
    kv_cache_size_tokens and max_concurrency are those that the engine of `engine_version` would
    set and log, its blocks' padding included. states: of recurrent layers, where they have a pool
    of their own, which is none of the capacity: as many sequences hold memory at once.
    """

    sized_by: str
    total_bytes: int
    unused_bytes: int
    weights_bytes: int
    activation_bytes: int
    other_bytes: int
    capacity_bytes: int
    block_size: int
    num_gpu_blocks: int
    non_torch_bytes: int
    cuda_graph_bytes: int
    engine_version: str
    engine_block_size: int
    engine_num_gpu_blocks: int
    kv_cache_size_tokens: int
    max_concurrency: float
    states: int | None = None


class Sized(NamedTuple):
    """A pool with what it was made from: the layout of the GPU's layers, the engine's plan of their
    cache and its closing lines. drafter: what drafting takes of it, if anything drafts.
    """

    pool: Pool
    layout: KVLayout
    plan: CachePlan
    start_up: StartUp
    drafter: DrafterCost | None = None
