"""The pool of one GPU: how much device memory is left for KV, item by item, in bytes."""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.capacity.drafter import DrafterCost
from kvsim.capacity.planning import CachePlan
from kvsim.capacity.start_up import StartUp
from kvsim.layout import KVLayout
from kvsim.plumbing.units import GIB


class SizedPool(NamedTuple):
    """The KV pool of one GPU, itemised, in bytes.

    sized_by: the option that sized it. With gpu_memory_utilization, total = unused + weights +
        activation + other + capacity, and other = non_torch + cuda_graph. Otherwise activation,
        other and unused are 0 and the capacity is the given one, whether the device has it or not.
    block_size: tokens in a block, as asked for; num_gpu_blocks, pool_tokens: blocks and tokens in
        the capacity, as the options num_gpu_blocks and kv_cache_tokens count them.
    engine_block_size, engine_num_gpu_blocks, kv_cache_size_tokens, max_concurrency: the figures
        that the engine of `engine_version` sets and logs, with the padding of its blocks.
    states: recurrent states in a pool of their own, which limits the sequences that hold memory at
        once; None: there is no such pool. They are outside the capacity, unless they are cached.
    window_tokens: slots of a pool for sliding windows within the capacity; None: there is none.
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
    pool_tokens: int
    non_torch_bytes: int
    cuda_graph_bytes: int
    engine_version: str
    engine_block_size: int
    engine_num_gpu_blocks: int
    kv_cache_size_tokens: int
    max_concurrency: float
    states: int | None = None
    window_tokens: int | None = None

    @property
    def simulated(self) -> "SizedPool":
        """The pool without the figures that an engine only logs and no simulated run depends on."""
        return self._replace(
            engine_version="",
            engine_block_size=0,
            engine_num_gpu_blocks=0,
            kv_cache_size_tokens=0,
            max_concurrency=0.0,
        )

    def over_device(self, device: str, stages: "Sequence[StageShare]" = ()) -> str | None:
        """The sentence on a given pool that the device cannot hold together with the weights; None
        if it can.

        stages: those of a pipeline, each with a pool of its own.
        """
        for each in stages or (StageShare.of(0, device, self),):
            needed = each.weights_bytes + each.pool_bytes
            if needed > each.device_bytes:
                return (
                    f"The pool ({self.sized_by}: {each.pool_bytes / GIB:,.2f} GiB) and the weights "
                    f"({each.weights_bytes / GIB:,.2f} GiB) take {needed / GIB:,.2f} GiB, more "
                    f"than the {each.device_bytes / GIB:,.2f} GiB of one {each.device}: no server "
                    "could have this pool"
                )
        return None


class StageShare(NamedTuple):
    """A stage of a pipeline: its number of layers, and one of its GPUs.

    The figures are this GPU's: weights, bytes left for KV, their blocks, its name, its memory.
    """

    layers: int
    weights_bytes: int
    pool_bytes: int
    num_gpu_blocks: int
    device: str
    device_bytes: int

    @classmethod
    def of(cls, layers: int, device: str, pool: SizedPool) -> "StageShare":
        """The stage of `layers` layers on GPUs with this pool."""
        left = pool.capacity_bytes, pool.engine_num_gpu_blocks
        return cls(layers, pool.weights_bytes, *left, device, pool.total_bytes)


def unlike_stages(stages: Sequence[StageShare]) -> str | None:
    """The sentence on the stage that limits the number of blocks, with the unused bytes of the
    other stages; None if their devices are equal.
    """
    if len({(each.device, each.device_bytes) for each in stages}) < 2:
        return None
    blocks = [each.num_gpu_blocks for each in stages]
    fewest = blocks.index(min(blocks))
    rooms = (
        f"stage {at} has room for {each.num_gpu_blocks:,} ({each.device})"
        for at, each in enumerate(stages, 1)
        if at - 1 != fewest
    )
    return (
        f"Stage {fewest + 1} ({stages[fewest].device}) decides the blocks of all stages: "
        f"{blocks[fewest]:,}; {', '.join(rooms)}"
    )


class Sized(NamedTuple):
    """A pool with the layout of the GPU's layers, the engine's plan of their caches and the last
    lines of its start-up log. drafter: the memory that drafting takes; None without a drafter.
    stages: those of a pipeline that keep KV, of which the one with the fewest blocks is this.
    stage: its index among all stages.
    """

    pool: SizedPool
    layout: KVLayout
    plan: CachePlan
    start_up: StartUp
    drafter: DrafterCost | None = None
    stages: tuple[StageShare, ...] = ()
    stage: int = 0
