"""A buffer of its own for each sequence, out of torch's allocator: allocate, copy, free."""

import numpy as np
import torch
from torch import Tensor

from kvsim.backend.shape import Shape
from kvsim.backend.step import Batch, HostSwap
from kvsim.backend.stores.store import Address, TensorStore, must_fit
from kvsim.plumbing.errors import InvariantError


class BufferStore(TensorStore):
    """Each sequence owns one tensor [layers, 2, capacity, kv_dim].

    `span.capacity` says how many slots it must have. A span that asks for more than its buffer has
    gets a new one; its content is copied, and the old one freed. Max-buffer asks once, doubling
    again and again. `release` frees.
    """

    def __init__(self, shape: Shape, device: str = "cpu") -> None:
        super().__init__(device)
        self.shape = shape
        self._dtype = getattr(torch, shape.dtype)
        self._buffers: dict[str, Tensor] = {}
        self._batch: Batch
        self._base: Tensor
        self._offsets: Tensor

    def begin(self, batch: Batch) -> None:
        for span, context in zip(batch.spans, batch.context, strict=True):
            if span.capacity is None:
                raise InvariantError(f"sequence {span.id!r} has no capacity")
            must_fit(span.id, context, span.capacity)
            self._grow(span.id, span.capacity, span.start)
        self._batch = batch
        self._base = self._buffers[batch.spans[0].id]

    def _grow(self, id: str, capacity: int, valid: int) -> None:
        old = self._buffers.get(id)
        if old is not None and old.shape[2] >= capacity:
            return
        new = self._empty(capacity)
        if valid:
            if old is None:
                raise InvariantError(f"sequence {id!r} has no buffer and {valid} tokens in it")
            new[:, :, :valid].copy_(old[:, :, :valid])
        self._buffers[id] = new

    def _empty(self, capacity: int) -> Tensor:
        size = (self.shape.layers, 2, capacity, self.shape.kv_dim)
        with self.memory.allocating():
            return torch.empty(size, dtype=self._dtype, device=self.device)

    def gather(self, swap: HostSwap) -> Tensor:
        """K and V of the swapped sequence, [layers, 2, slots, kv_dim]; the buffer is freed."""
        return self._buffers.pop(swap.id)[:, :, : swap.slots]

    def scatter(self, swap: HostSwap, rows: Tensor) -> None:
        if swap.capacity is None or swap.id in self._buffers:
            raise InvariantError(f"no new buffer for sequence {swap.id!r}: {swap}")
        must_fit(swap.id, swap.slots, swap.capacity)
        buffer = self._buffers[swap.id] = self._empty(swap.capacity)
        buffer[:, :, : swap.slots].copy_(rows)

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        begin = self._batch.begin
        for index, span in enumerate(self._batch.spans):
            new = slice(begin[index], begin[index + 1])
            rows = self._buffers[span.id][layer, :, span.start : span.context]
            rows[0].copy_(key[new].flatten(1))
            rows[1].copy_(value[new].flatten(1))

    def read(self, layer: int, index: int) -> tuple[Tensor, Tensor]:
        span = self._batch.spans[index]
        rows = self._buffers[span.id][layer, :, : span.context]
        key, value = rows.view(2, -1, self.shape.kv_heads, self.shape.head_dim)
        return key, value

    def locate(self) -> None:
        # Offsets from one buffer into all others, which share the device's address space; within a
        # buffer they follow from its strides.
        buffers = [self._buffers[span.id] for span in self._batch.spans]
        base, size = self._base.data_ptr(), self._base.element_size()
        first = np.asarray([(buffer.data_ptr() - base) // size for buffer in buffers])
        part = np.asarray([buffer.stride(1) for buffer in buffers])
        if len(buffers) % 2:  # rows of 16 bytes: a kernel is compiled anew for others
            first, part = np.append(first, 0), np.append(part, 0)
        parts = np.arange(2 * self.shape.layers).reshape(self.shape.layers, 2, 1)
        self._offsets = self._batch.put(first + parts * part)

    def address(self, layer: int) -> Address:
        key, value = self._offsets[layer]
        return Address(self._base, self._base, key, value)

    def release(self, id: str) -> None:
        """Free the buffer of `id`, if it has one."""
        super().release(id)
        self._buffers.pop(id, None)

    @property
    def held_bytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._buffers.values())
