"""Blocks out of one pool; a block table leads from a sequence's slots to them."""

import numpy as np
import torch
from torch import Tensor

from kvsim.backend.shape import Shape
from kvsim.backend.step import Batch, Copy, Swap
from kvsim.backend.stores.pool import SlotPool
from kvsim.backend.stores.store import Address, Store, must_fit
from kvsim.plumbing.errors import InvariantError


class PagedStore(Store):
    """num_blocks blocks of block_size slots; block b holds slots b * block_size and following."""

    def __init__(self, shape: Shape, num_blocks: int, block_size: int, device: str = "cpu") -> None:
        super().__init__(device)
        self.shape = shape
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.pool = SlotPool(shape, num_blocks * block_size, device)
        self._batch: Batch
        self._tables: list[Tensor]
        self._slots: Tensor
        self._table: Tensor | None

    def begin(self, batch: Batch) -> None:
        size = self.block_size
        tables, slots = [], []
        for span, context in zip(batch.spans, batch.context, strict=True):
            must_fit(span.id, context, len(span.blocks) * size)
            table = np.asarray(span.blocks[: -(-context // size)], dtype=np.int64)
            if table.min() < 0 or table.max() >= self.num_blocks:
                raise InvariantError(f"sequence {span.id!r} has a block outside the pool: {table}")
            position = np.arange(span.start, context)
            tables.append(table)
            slots.append(table[position // size] * size + position % size)
        self._batch = batch
        self._tables = [torch.from_numpy(table) for table in tables]
        self._slots = torch.from_numpy(np.concatenate(slots)).to(self.device)
        self._table = None

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        self.pool.write(layer, self._slots, key, value)

    def read(self, layer: int, index: int) -> tuple[Tensor, Tensor]:
        # Gathering from a view with one row a block copies the blocks alone; from a strided slice
        # of the pool, torch would copy the whole pool first.
        table = self._tables[index].to(self.device)
        context = self._batch.context[index]

        def gather(part: int) -> Tensor:
            blocks = self.pool.rows[layer, part].view(self.num_blocks, -1)
            rows = blocks.index_select(0, table).view(-1, self.shape.kv_heads, self.shape.head_dim)
            return rows[:context]

        return gather(0), gather(1)

    def address(self, layer: int) -> Address:
        if self._table is None:
            padded = np.zeros((len(self._tables), max(map(len, self._tables))), dtype=np.int32)
            for row, table in zip(padded, self._tables, strict=True):
                row[: len(table)] = table
            self._table = torch.from_numpy(padded).to(self.device)
        rows = self.pool.rows[layer]
        return Address(rows[0], rows[1], table=self._table, page=self.block_size)

    def copy(self, copy: Copy) -> None:
        """Copy on write: the first `slots` slots of one block to another."""
        if copy.slots > self.block_size:
            raise InvariantError(f"a copy within a block of {self.block_size} slots, got {copy}")
        size = self.block_size
        self.pool.copy(copy.source * size, copy.target * size, copy.slots)

    def gather(self, swap: Swap) -> Tensor:
        return self.pool.rows.index_select(2, self._slots_of(swap))

    def scatter(self, swap: Swap, rows: Tensor) -> None:
        self.pool.rows.index_copy_(2, self._slots_of(swap), rows.to(self.device))

    def _slots_of(self, swap: Swap) -> Tensor:
        """The first slots of the swap's block table, int64 [slots]."""
        must_fit(swap.id, swap.slots, len(swap.blocks) * self.block_size)
        blocks = torch.tensor(swap.blocks, dtype=torch.int64)
        slots = blocks[:, None] * self.block_size + torch.arange(self.block_size)
        return slots.flatten()[: swap.slots].to(self.device)

    @property
    def held_bytes(self) -> int:
        return self.pool.rows.nbytes
