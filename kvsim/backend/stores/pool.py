"""One address space of slots: K and V of all layers, slot by slot."""

from contextlib import nullcontext

import torch
from torch import Tensor

from kvsim.backend.devices.device import KvMemory
from kvsim.backend.shape import Shape
from kvsim.plumbing.errors import InvariantError


class SlotPool:
    """`rows` is [layers, 2, slots, kv_dim]: a slot is one row of K and one of V in every layer.

    Unwritten memory reads as NaN, so that a wrong address cannot pass for a small error.
    """

    def __init__(
        self, shape: Shape, num_slots: int, device: str = "cpu", memory: KvMemory | None = None
    ) -> None:
        self.shape = shape
        self.num_slots = num_slots
        with nullcontext() if memory is None else memory.allocating():
            self.rows = torch.full(
                (shape.layers, 2, num_slots, shape.kv_dim),
                torch.nan,
                dtype=getattr(torch, shape.dtype),
                device=device,
            )

    def fill(self, seed: int) -> None:
        """Normal numbers everywhere: content for a measurement that never prefills."""
        self.rows.normal_(generator=torch.Generator(self.rows.device).manual_seed(seed))

    def write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """key, value: [tokens, kv_heads, head_dim] into the rows `slots` (int64 [tokens])."""
        self.rows[layer, 0].index_copy_(0, slots, key.reshape(-1, self.shape.kv_dim))
        self.rows[layer, 1].index_copy_(0, slots, value.reshape(-1, self.shape.kv_dim))

    def copy(self, source: int, target: int, slots: int) -> None:
        """Move a range of slots to another in all layers; the ranges may overlap."""
        for start in (source, target):
            if start < 0 or start + slots > self.num_slots:
                raise InvariantError(f"slots {start} to {start + slots} of {self.num_slots}")
        moved = self.rows[:, :, source : source + slots]
        if abs(source - target) < slots:
            moved = moved.clone()
        self.rows[:, :, target : target + slots].copy_(moved)
