"""Staging buffer: one host-to-device copy for all index tensors of a step."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from kvsim.backend.devices.device import TorchDevice
from kvsim.plumbing.errors import InvariantError

Array = (
    np.ndarray[tuple[int, ...], np.dtype[np.int32]]
    | np.ndarray[tuple[int, ...], np.dtype[np.int64]]
)
Put = Callable[[Array], Tensor]
"""Brings an array to the device, at once or with the next `Staging.send`."""

ALIGNMENT = 16  # bytes; what kernels load at once


class Staging:
    """A buffer in host memory, pinned where the device asks for that, and its twin on the device.

    `put` and `reserve` hand out places in both; `send` copies what was handed out, all of it at
    once. The tensors are valid until `clear`.
    """

    def __init__(self, device: TorchDevice, num_bytes: int) -> None:
        self._device = device
        self._host = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=device.pins)
        self._there = torch.empty(num_bytes, dtype=torch.uint8, device=device.name)
        self._used = 0
        self._sent: Callable[[], None] | None = None

    def clear(self) -> None:
        """Invalidate everything handed out, after waiting for copies in flight."""
        self.wait()
        self._used = 0

    def wait(self) -> None:
        """Wait for copies in flight, so that the host buffer may be overwritten."""
        if self._sent is not None:
            self._sent()
            self._sent = None

    def reserve(
        self, shape: tuple[int, ...], dtype: type[np.signedinteger]
    ) -> tuple[Array, Tensor]:
        """An array of the host and the tensor on the device that `send` makes equal to it."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        first, self._used = self._used, -(-(self._used + size) // ALIGNMENT) * ALIGNMENT
        if first + size > len(self._host):
            self._used = first
            raise InvariantError(f"{size} bytes beyond the {len(self._host)} of a staging buffer")
        kind = torch.int64 if np.dtype(dtype) == np.int64 else torch.int32
        here, there = (
            side[first : first + size].view(kind).view(shape) for side in (self._host, self._there)
        )
        return here.numpy(), there

    def put(self, array: Array) -> Tensor:
        """The tensor that holds `array` after `send`; one beyond the buffer is copied by itself."""
        if self._used + array.nbytes > len(self._host):
            return torch.from_numpy(array).to(self._device.name)
        here, there = self.reserve(array.shape, array.dtype.type)
        here[...] = array
        return there

    def send(self) -> None:
        """Bring everything handed out to the device."""
        there, here = self._there[: self._used], self._host[: self._used]
        there.copy_(here, non_blocking=self._device.pins)
        self._sent = self._device.mark()
