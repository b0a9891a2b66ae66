"""One pool in host memory for blocks of K and V."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from kvsim.backend.devices import device_of
from kvsim.plumbing.errors import InvariantError


class HostSlots:
    """`rows` is [slots, layers, 2, width]: a slot holds K and V of one block in all layers.

    width: elements of K, or of V, that a block has in one layer. The pool is pinned where the
    device pins host memory, so that copies run while the host goes on; the caller synchronizes.
    """

    def __init__(
        self, num_slots: int, layers: int, width: int, dtype: torch.dtype, device: str
    ) -> None:
        pinned = device_of(device).pins
        self.rows = torch.empty((num_slots, layers, 2, width), dtype=dtype, pin_memory=pinned)
        self._pinned = pinned

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot."""
        return self.rows[0].nbytes

    def store(self, slots: Sequence[int], blocks: Tensor) -> None:
        """Copy `blocks`, [n, layers, 2, width] on the device, to n slots."""
        for first, begin, end in self._runs(slots, len(blocks)):
            there = self.rows[first : first + end - begin]
            there.copy_(blocks[begin:end], non_blocking=self._pinned)

    def load(self, slots: Sequence[int], blocks: Tensor) -> None:
        """Copy n slots to `blocks`, [n, layers, 2, width] on the device."""
        for first, begin, end in self._runs(slots, len(blocks)):
            here = self.rows[first : first + end - begin]
            blocks[begin:end].copy_(here, non_blocking=self._pinned)

    def _runs(self, slots: Sequence[int], count: int) -> Iterator[tuple[int, int, int]]:
        """Runs of successive slots, as (first slot, begin, end): one copy each."""
        if len(slots) != count or min(slots) < 0 or max(slots) >= len(self.rows):
            raise InvariantError(f"slots {slots} of {len(self.rows)} for {count} blocks")
        begin = 0
        for end in range(1, count + 1):
            if end == count or slots[end] != slots[end - 1] + 1:
                yield slots[begin], begin, end
                begin = end
