"""Host memory for the K and V of swapped sequences."""

import torch
from torch import Tensor

from kvsim.plumbing.errors import InvariantError


class HostMemory:
    """K and V by sequence, [layers, 2, slots, kv_dim] each; pinned if the device is a GPU, so that
    copies overlap with the host's work.

    copied_bytes: bytes copied to host memory and back so far.
    """

    def __init__(self, device: str) -> None:
        self._pinned = device.startswith("cuda")
        self._held: dict[str, Tensor] = {}
        self.copied_bytes = 0

    def put(self, id: str, rows: Tensor) -> None:
        """Store a copy of `rows` for sequence `id`, which must not be stored yet."""
        if id in self._held:
            raise InvariantError(f"sequence {id!r} is in host memory already")
        kept = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=self._pinned)
        kept.copy_(rows, non_blocking=self._pinned)
        self._held[id] = kept
        self.copied_bytes += kept.nbytes

    def take(self, id: str, slots: int) -> Tensor:
        """Remove and return the rows of sequence `id`, `slots` of them."""
        rows = self._held.pop(id, None)
        if rows is None or rows.shape[2] != slots:
            raise InvariantError(f"sequence {id!r} has no {slots} slots in host memory")
        self.copied_bytes += rows.nbytes
        return rows

    def drop(self, id: str) -> None:
        """Drop the rows of sequence `id`, which has finished."""
        self._held.pop(id, None)

    @property
    def held_bytes(self) -> int:
        """Bytes stored in host memory now."""
        return sum(rows.nbytes for rows in self._held.values())
