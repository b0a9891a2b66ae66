"""Contiguous buffers in one address space: max-buffer and doubling under any placement."""

import numpy as np
import torch
from torch import Tensor

from kvsim.backend.shape import Shape
from kvsim.backend.step import Batch, Copy, Swap
from kvsim.backend.stores.pool import SlotPool
from kvsim.backend.stores.store import Address, Store, must_fit
from kvsim.plumbing.errors import InvariantError


class ContiguousStore(Store):
    """num_slots slots; a sequence's token t lies at slot `span.slot + t`.

    What a buffer reserves and where it stands is the allocator's matter. One that grows arrives
    as a copy from its old place to its new one, and as a new `slot`.
    """

    def __init__(self, shape: Shape, num_slots: int, device: str = "cpu") -> None:
        super().__init__(device)
        self.shape = shape
        self.pool = SlotPool(shape, num_slots, device)
        self._batch: Batch
        self._first: list[int]
        self._slots: Tensor
        self._offset: Tensor

    def begin(self, batch: Batch) -> None:
        first = []
        for span, context in zip(batch.spans, batch.context, strict=True):
            if span.slot is None or span.slot < 0:
                raise InvariantError(f"sequence {span.id!r} has no slot: {span.slot}")
            must_fit(span.id, context, self.pool.num_slots - span.slot)
            first.append(span.slot)
        lengths = np.diff(batch.begin)
        shift = torch.from_numpy(np.repeat(np.asarray(first, dtype=np.int64), lengths))
        self._batch = batch
        self._first = first
        self._slots = batch.positions + shift.to(self.device)
        self._offset = torch.tensor(first, device=self.device) * self.shape.kv_dim

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        self.pool.write(layer, self._slots, key, value)

    def read(self, layer: int, index: int) -> tuple[Tensor, Tensor]:
        first = self._first[index]
        rows = self.pool.rows[layer, :, first : first + self._batch.context[index]]
        # Attention goes through K and V once a head, by strides: a copy in one go, which caches
        # then hold, costs less than it saves (decode at 16 x 300 tokens: 8.5 ms against 11.4).
        key, value = rows.clone().view(2, -1, self.shape.kv_heads, self.shape.head_dim)
        return key, value

    def address(self, layer: int) -> Address:
        rows = self.pool.rows[layer]
        return Address(rows[0], rows[1], self._offset, self._offset)

    def copy(self, copy: Copy) -> None:
        """A buffer's slots move to its successor, or to a fork."""
        self.pool.copy(copy.source, copy.target, copy.slots)

    def gather(self, swap: Swap) -> Tensor:
        return self._range(swap)

    def scatter(self, swap: Swap, rows: Tensor) -> None:
        self._range(swap).copy_(rows)

    def _range(self, swap: Swap) -> Tensor:
        if swap.slot is None or swap.slot < 0:
            raise InvariantError(f"sequence {swap.id!r} has no slot: {swap.slot}")
        must_fit(swap.id, swap.slots, self.pool.num_slots - swap.slot)
        return self.pool.rows[:, :, swap.slot : swap.slot + swap.slots]

    @property
    def held_bytes(self) -> int:
        return self.pool.rows.nbytes
