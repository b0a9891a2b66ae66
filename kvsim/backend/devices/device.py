"""The interface of a device of the backend."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

AttentionKind = Literal["gather", "sdpa", "triton", "flash-attn", "flashinfer", "reference"]


class MemoryCount(NamedTuple):
    """Bytes of torch's caching allocator: requested, allocated and reserved."""

    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int


class Captured(Protocol):
    """A captured graph. output: the tensor that every replay writes its result to."""

    output: Tensor

    def replay(self) -> None:
        """Run the captured work again, on the present content of its tensors."""
        ...


class KvMemory(ABC):
    """The part of the device's memory that holds K and V, counted separately."""

    @abstractmethod
    def allocating(self) -> AbstractContextManager[object]:
        """Context in which all allocations belong to this memory."""

    @abstractmethod
    def count(self, held_bytes: int) -> MemoryCount:
        """The memory's use now, in bytes.

        held_bytes: of tensors in it, for a device that does not count them.
        """


class TorchDevice(ABC):
    """A torch device that steps run on. name: torch's name of it. attention: the attention kernel
    by default. captures: whether steps are captured in graphs and replayed by default. pins:
    whether host memory is pinned, so that copies run while the host goes on. overlaps: whether it
    computes while the host goes on. spare_bytes: bytes of its memory kept for libraries, graphs and
    what torch cannot give back.
    """

    attention: AttentionKind
    captures: bool
    pins: bool
    overlaps: bool
    spare_bytes: int

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work is done."""

    @abstractmethod
    def mark(self) -> Callable[[], None]:
        """A function that waits until all work launched so far is done."""

    def bring(self, numbers: Tensor) -> Callable[[], list[int]]:
        """Begin to copy `numbers` [n] to the host; the result is a function that waits for the
        copy.
        """
        here = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=self.pins)
        here.copy_(numbers, non_blocking=self.pins)
        copied = self.mark()

        def read() -> list[int]:
            copied()
            found: list[int] = here.tolist()
            return found

        return read

    @abstractmethod
    def free_bytes(self) -> int:
        """Bytes of device memory that torch can still allocate."""

    @abstractmethod
    def release_unused(self) -> None:
        """Give memory that no tensor holds back to the device."""

    @abstractmethod
    def kv_memory(self) -> KvMemory:
        """A new, empty memory for K and V."""

    @abstractmethod
    def graph_pool(self) -> object:
        """A memory pool for graphs that never run at the same time."""

    @abstractmethod
    def capture(self, work: Callable[[], Tensor], pool: object) -> Captured:
        """Record `work`, which touches the same tensors each time and waits for nothing."""
