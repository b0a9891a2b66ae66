"""A CUDA GPU as a device of the backend."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch import Tensor

from kvsim.backend.devices.device import Captured, KvMemory, MemoryCount, TorchDevice

WARM_UPS = 3  # runs before a capture: they compile kernels and set up libraries


class CudaDevice(TorchDevice):
    """One GPU; work is launched on its current stream."""

    attention = "triton"
    captures = True
    pins = True
    overlaps = True
    spare_bytes = 4 << 30

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.name)

    def mark(self) -> Callable[[], None]:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event.synchronize

    def free_bytes(self) -> int:
        free, _ = torch.cuda.mem_get_info(self.name)
        unused = torch.cuda.memory_reserved(self.name) - torch.cuda.memory_allocated(self.name)
        return free + unused

    def release_unused(self) -> None:
        torch.cuda.empty_cache()

    def kv_memory(self) -> KvMemory:
        return _PoolMemory()

    def graph_pool(self) -> object:
        return torch.cuda.graph_pool_handle()

    def capture(self, work: Callable[[], Tensor], pool: object) -> Captured:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                work()
        torch.cuda.current_stream().wait_stream(side)
        return _Graph(work, pool)


class _Graph:
    def __init__(self, work: Callable[[], Tensor], pool: object) -> None:
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=cast("Any", pool)):
            self.output = work()

    def replay(self) -> None:
        self._graph.replay()


class _PoolMemory(KvMemory):
    """KV memory in a separate pool of torch's caching allocator; weights, logits and indices use
    another pool.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.MemPool()

    def allocating(self) -> AbstractContextManager[object]:
        return cast("AbstractContextManager[object]", torch.cuda.use_mem_pool(self._pool))

    def count(self, held_bytes: int) -> MemoryCount:
        """Count the memory from torch's own list of segments and blocks."""
        requested = allocated = reserved = 0
        for segment in torch.cuda.memory_snapshot(self._pool.id):  # type: ignore[no-untyped-call]
            reserved += int(segment["total_size"])
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    allocated += int(block["size"])
                    requested += int(block["requested_size"])
        return MemoryCount(requested, allocated, reserved)
