"""A store without a cache: each step computes all tokens of its sequences again."""

import numpy as np
from torch import Tensor

from kvsim.backend.step import Batch
from kvsim.backend.stores.store import Address, TensorStore
from kvsim.plumbing.errors import InvariantError


class RecomputeStore(TensorStore):
    """Holds K and V of a single layer during a single step."""

    def __init__(self) -> None:
        super().__init__()
        self._batch: Batch
        self._key: Tensor
        self._value: Tensor
        self._first: Tensor

    def begin(self, batch: Batch) -> None:
        for span in batch.spans:
            if span.start:
                raise InvariantError(f"sequence {span.id!r} starts at {span.start} without a cache")
        self._batch = batch

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        self._key, self._value = key.contiguous(), value.contiguous()

    def read(self, layer: int, index: int) -> tuple[Tensor, Tensor]:
        own = slice(self._batch.begin[index], self._batch.begin[index + 1])
        return self._key[own], self._value[own]

    def receive(self, key: Tensor, value: Tensor) -> None:
        self._key, self._value = key.new_empty(key.shape), value.new_empty(value.shape)

    def locate(self) -> None:
        self._first = self._batch.put(np.asarray(self._batch.begin[:-1]))

    def address(self, layer: int) -> Address:
        offset = self._first * self._key[0].numel()
        return Address(self._key, self._value, offset, offset)

    @property
    def held_bytes(self) -> int:
        return 0
