"""Blocks out of one pool; a block table leads from a sequence's slots to them."""

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor

from kvsim.backend.devices.staging import Array, Staging
from kvsim.backend.shape import Shape
from kvsim.backend.step import Batch, Copy, HostSwap, TierCopy, TokenSpan
from kvsim.backend.stores.pool import SlotPool
from kvsim.backend.stores.store import Address, FixedPlaces, TensorStore, must_fit
from kvsim.backend.tiers.host_slots import HostSlots
from kvsim.plumbing.errors import InvariantError

WIDTH = 16  # block tables come in widths of multiples of this: kernels know one width from another
NULL_BLOCK = 0  # padding of a captured step writes here; no sequence may own it then


class PagedStore(TensorStore):
    """num_blocks blocks of block_size slots; block b holds slots b * block_size and following."""

    captures = True

    def __init__(self, shape: Shape, num_blocks: int, block_size: int, device: str = "cpu") -> None:
        super().__init__(device)
        self.shape = shape
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.pool = SlotPool(shape, num_blocks * block_size, device, self.memory)
        self._host_pool: HostSlots | None = None
        self._batch: Batch
        self._tables: list[Array]
        self._slots: Tensor | None
        self._table: Tensor

    def begin(self, batch: Batch) -> None:
        self._batch = batch
        self._tables = [self.table_of(span) for span in batch.spans]
        self._slots = None

    def table_of(self, span: TokenSpan) -> Array:
        """The blocks of a span's context, int64; InvariantError if they do not hold it."""
        must_fit(span.id, span.context, len(span.blocks) * self.block_size)
        table = np.asarray(span.blocks[: -(-span.context // self.block_size)], dtype=np.int64)
        if table.min() < 0 or table.max() >= self.num_blocks:
            raise InvariantError(f"sequence {span.id!r} has a block outside the pool: {table}")
        return table

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        if self._slots is None:
            self._slots = self._batch.put(self._new_slots())
        self.pool.write(layer, self._slots, key, value)

    def _new_slots(self) -> Array:
        """Slots of the step's new tokens, int64 [tokens]."""
        size, slots = self.block_size, []
        for span, table in zip(self._batch.spans, self._tables, strict=True):
            position = np.arange(span.start, span.context)
            slots.append(table[position // size] * size + position % size)
        return np.concatenate(slots)

    def read(self, layer: int, index: int) -> tuple[Tensor, Tensor]:
        # Gathering from a view with one row a block copies the blocks alone; from a strided slice
        # of the pool, torch would copy the whole pool first.
        table = self._batch.put(self._tables[index])
        context = self._batch.context[index]

        def gather(part: int) -> Tensor:
            blocks = self.pool.rows[layer, part].view(self.num_blocks, -1)
            rows = blocks.index_select(0, table).view(-1, self.shape.kv_heads, self.shape.head_dim)
            return rows[:context]

        return gather(0), gather(1)

    def read_padded(self, layer: int, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        tables = [self._tables[index] for index in indices]
        table = self._batch.put(_padded(tables, max(map(len, tables)))).flatten()

        def gather(part: int) -> Tensor:
            blocks = self.pool.rows[layer, part].view(self.num_blocks, -1).index_select(0, table)
            return blocks.view(len(tables), -1, self.shape.kv_heads, self.shape.head_dim)

        return gather(0), gather(1)

    def locate(self) -> None:
        width = table_width(max(map(len, self._tables)))
        self._table = self._batch.put(_padded(self._tables, width))

    def place_bytes(self, max_context: int) -> int:
        return 4 * table_width(-(-max_context // self.block_size))

    def fixed_places(self, spans: int, max_context: int, staging: Staging) -> FixedPlaces:
        width = table_width(-(-max_context // self.block_size))
        return _FixedTables(self, *staging.reserve((spans, width), np.int32))

    def address(self, layer: int) -> Address:
        rows = self.pool.rows[layer]
        return Address(rows[0], rows[1], table=self._table, page=self.block_size)

    def copy(self, copy: Copy) -> None:
        """Copy on write: the first `slots` slots of one block to another."""
        if copy.slots > self.block_size:
            raise InvariantError(f"a copy within a block of {self.block_size} slots, got {copy}")
        size = self.block_size
        self.pool.copy(copy.source * size, copy.target * size, copy.slots)

    def gather(self, swap: HostSwap) -> Tensor:
        return self.pool.rows.index_select(2, self._slots_of(swap))

    def scatter(self, swap: HostSwap, rows: Tensor) -> None:
        self.pool.rows.index_copy_(2, self._slots_of(swap), rows.to(self.device))

    def with_host_pool(self, num_slots: int) -> Self:
        """Add a pool in host memory with `num_slots` slots of one block each."""
        width = self.block_size * self.shape.kv_dim
        dtype = self.pool.rows.dtype
        self._host_pool = HostSlots(num_slots, self.shape.layers, width, dtype, self.device)
        return self

    def offload(self, copy: TierCopy) -> None:
        if self._host_pool is None:
            super().offload(copy)
        elif copy.to_host:
            self._host_pool.store(copy.slots, self.gather_blocks(copy.blocks))
        else:
            rows = torch.empty_like(self.gather_blocks(copy.blocks))
            self._host_pool.load(copy.slots, rows)
            self.scatter_blocks(copy.blocks, rows)

    def gather_blocks(self, blocks: Sequence[int], out: Tensor | None = None) -> Tensor:
        """K and V [n, layers, 2, block_size * kv_dim] of n blocks, in `out` where it is given."""
        return torch.index_select(self._by_block(), 0, self._ids(blocks), out=out)

    def scatter_blocks(self, blocks: Sequence[int], rows: Tensor) -> None:
        """Write `rows`, shaped as `gather_blocks` gives them, to n blocks."""
        self._by_block().index_copy_(0, self._ids(blocks), rows)

    def _by_block(self) -> Tensor:
        """The pool as [num_blocks, layers, 2, block_size * kv_dim], the same memory."""
        return self.pool.rows.view(self.shape.layers, 2, self.num_blocks, -1).movedim(2, 0)

    def _ids(self, blocks: Sequence[int]) -> Tensor:
        return torch.tensor(blocks, dtype=torch.int64, device=self.device)

    def _slots_of(self, swap: HostSwap) -> Tensor:
        """The first slots of the swap's block table, int64 [slots]."""
        must_fit(swap.id, swap.slots, len(swap.blocks) * self.block_size)
        blocks = torch.tensor(swap.blocks, dtype=torch.int64)
        slots = blocks[:, None] * self.block_size + torch.arange(self.block_size)
        return slots.flatten()[: swap.slots].to(self.device)

    @property
    def held_bytes(self) -> int:
        return self.pool.rows.nbytes


class _FixedTables:
    def __init__(self, store: PagedStore, host: Array, there: Tensor) -> None:
        self._store = store
        self._host = host
        self._there = there

    def clear(self) -> None:
        self._host[...] = NULL_BLOCK

    def load(self, index: int, span: TokenSpan) -> None:
        table = self._store.table_of(span)
        if (table == NULL_BLOCK).any():
            raise InvariantError(f"sequence {span.id!r} has the block that is nobody's")
        self._host[index, : len(table)] = table

    def address(self, layer: int) -> Address:
        rows = self._store.pool.rows[layer]
        return Address(rows[0], rows[1], table=self._there, page=self._store.block_size)


def _padded(tables: Sequence[Array], width: int) -> Array:
    """The tables as rows of one array, int32, filled up with block 0."""
    padded = np.zeros((len(tables), width), dtype=np.int32)
    for row, table in zip(padded, tables, strict=True):
        row[: len(table)] = table
    return padded


def table_width(blocks: int) -> int:
    """The padded width of a block table of `blocks` blocks."""
    return -(-blocks // WIDTH) * WIDTH
