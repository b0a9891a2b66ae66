"""The CPU as a device: all work is synchronous, and torch counts no memory."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from torch import Tensor

from kvsim.backend.devices.device import Captured, KvMemory, MemoryCount, TorchDevice

MEMINFO = Path("/proc/meminfo")


class CpuDevice(TorchDevice):
    """The CPU. It has no graphs: a captured step is run again, and only on request, for tests."""

    attention = "gather"
    captures = False
    pins = False
    overlaps = False
    spare_bytes = 1 << 28

    def synchronize(self) -> None:
        """Do nothing: work on a CPU is done when its call returns."""

    def mark(self) -> Callable[[], None]:
        return self.synchronize

    def free_bytes(self) -> int:
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def release_unused(self) -> None:
        """Do nothing: freed memory of a CPU returns to the system by itself."""

    def kv_memory(self) -> KvMemory:
        return _HostMemory()

    def graph_pool(self) -> object:
        return None

    def capture(self, work: Callable[[], Tensor], pool: object) -> Captured:
        return _Rerun(work)


class _Rerun:
    def __init__(self, work: Callable[[], Tensor]) -> None:
        self._work = work
        self.output = work()

    def replay(self) -> None:
        self.output.copy_(self._work())


class _HostMemory(KvMemory):
    """KV memory on a CPU, which torch does not count: requested = allocated = reserved = held."""

    def allocating(self) -> AbstractContextManager[object]:
        return nullcontext()

    def count(self, held_bytes: int) -> MemoryCount:
        return MemoryCount(held_bytes, held_bytes, held_bytes)
