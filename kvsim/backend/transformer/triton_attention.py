"""Attention on a GPU: which tile takes which query rows, and the launch of the kernels."""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from kvsim.backend.shape import DTYPE_BYTES, Shape
from kvsim.backend.step import Batch
from kvsim.backend.stores.store import Address, Store
from kvsim.backend.transformer import kernel
from kvsim.plumbing.errors import InputError

LOG2_E = 1.4426950408889634
DECODE_ROWS = 16  # the least a matrix unit takes; a decoding span fills `group` of them
PREFILL_ROWS = 64
PROGRAMS_WANTED = 512  # about four for each multiprocessor of a large chip
MOST_SPLITS = 32
KEY_TILE_BYTES = 16384  # of K in one loop step: three stages of K and V fit shared memory


class Tiles(NamedTuple):
    """Tiles of one size, int32 [tiles] each: their span, and their first token within it.

    part, part_max, part_sum: float32 scratch for `splits` partial results a tile; empty with one.
    """

    span: Tensor
    token: Tensor
    rows: int
    splits: int
    part: Tensor
    part_max: Tensor
    part_sum: Tensor


class Plan(NamedTuple):
    """The index tensors of a step, the same for all its layers.

    positions: int64 [tokens]; token_span: int32 [tokens]; span_begin, span_new, span_start: int32
    [spans]: first row, new tokens, and tokens before them.
    """

    positions: Tensor
    token_span: Tensor
    span_begin: Tensor
    span_new: Tensor
    span_start: Tensor
    tiles: tuple[Tiles, ...]

    @classmethod
    def of(cls, batch: Batch, shape: Shape) -> Self:
        """The plan of a batch; one set of tiles for its decoding spans, one for its chunks."""
        _check(shape)
        device = batch.positions.device
        new = np.diff(batch.begin)

        def put(values: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Tensor:
            return torch.from_numpy(values.astype(np.int32)).to(device)

        def tiles() -> Iterator[Tiles]:
            for decoding, rows in ((True, DECODE_ROWS), (False, PREFILL_ROWS)):
                rows = max(rows, _power_of_two(shape.group))
                per_tile = rows // shape.group
                spans = np.flatnonzero((new == 1) == decoding)
                counts = -(-new[spans] // per_tile)
                if not counts.size:
                    continue
                first = np.concatenate([np.arange(count) for count in counts]) * per_tile
                yield _tiles(put(np.repeat(spans, counts)), put(first), rows, shape)

        return cls(
            positions=batch.positions,
            token_span=put(np.repeat(np.arange(len(new)), new)),
            span_begin=put(np.asarray(batch.begin[:-1])),
            span_new=put(new),
            span_start=put(np.asarray(batch.start)),
            tiles=tuple(tiles()),
        )


class TritonAttention:
    """An `Attend` for one step, over any store."""

    def __init__(self, shape: Shape, store: Store, batch: Batch) -> None:
        self.shape = shape
        self.store = store
        self.plan = Plan.of(batch, shape)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Attend`."""
        self.store.receive(key, value)
        return launch(self.shape, self.plan, self.store.address(layer), query, key, value)


def launch(
    shape: Shape, plan: Plan, address: Address, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """Write the new tokens' key and value, then attend; the result is dense and shaped as query.

    query: [tokens, heads, head_dim]; key, value: [tokens, kv_heads, head_dim]; heads dense, any
    stride between tokens. Addresses lie on multiples of 16 elements.
    """
    kv_heads, group, dim = shape.kv_heads, shape.group, shape.head_dim
    dim_padded = _power_of_two(dim)
    # Of table and offsets one is absent; its place is filled by something never read.
    table = plan.token_span if address.table is None else address.table
    width = 0 if address.table is None else address.table.shape[1]
    key_offset = plan.positions if address.key_offset is None else address.key_offset
    value_offset = plan.positions if address.value_offset is None else address.value_offset
    result = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    kernel.write[(len(query),)](
        key,
        value,
        address.key,
        address.value,
        table,
        key_offset,
        value_offset,
        plan.token_span,
        plan.positions,
        key.stride(0),
        value.stride(0),
        width,
        PAGE=address.page,
        ROW=shape.kv_dim,
        ROW_PADDED=_power_of_two(shape.kv_dim),
    )
    for tiles in plan.tiles:
        kernel.attend[(len(tiles.span), kv_heads, tiles.splits)](
            query,
            address.key,
            address.value,
            result,
            tiles.part,
            tiles.part_max,
            tiles.part_sum,
            table,
            key_offset,
            value_offset,
            plan.span_begin,
            plan.span_new,
            plan.span_start,
            tiles.span,
            tiles.token,
            dim**-0.5 * LOG2_E,
            query.stride(0),
            width,
            PAGE=address.page,
            KV_HEADS=kv_heads,
            GROUP=group,
            DIM=dim,
            DIM_PADDED=dim_padded,
            ROWS=tiles.rows,
            KEYS=key_tile(shape),
            SPLITS=tiles.splits,
            PRECISION="ieee",
            num_warps=4,
            num_stages=3,
        )
        if tiles.splits > 1:
            rows_used = tiles.rows // group * group
            kernel.combine[(len(tiles.span), kv_heads, rows_used)](
                result,
                tiles.part,
                tiles.part_max,
                tiles.part_sum,
                plan.span_begin,
                plan.span_new,
                tiles.span,
                tiles.token,
                KV_HEADS=kv_heads,
                GROUP=group,
                DIM=dim,
                DIM_PADDED=dim_padded,
                ROWS=tiles.rows,
                SPLITS=tiles.splits,
                SPLITS_PADDED=_power_of_two(tiles.splits),
            )
    return result


def key_tile(shape: Shape) -> int:
    """Keys a program takes in one step of its loop."""
    row_bytes = _power_of_two(shape.head_dim) * DTYPE_BYTES[shape.dtype]
    return max(16, min(64, KEY_TILE_BYTES // row_bytes))


def _tiles(span: Tensor, token: Tensor, rows: int, shape: Shape) -> Tiles:
    # Splits depend on the number of tiles alone, never on a context: a captured graph keeps them.
    programs = len(span) * shape.kv_heads
    splits = min(MOST_SPLITS, 1 << max(0, (PROGRAMS_WANTED // programs).bit_length() - 1))
    scratch = (programs * splits * rows if splits > 1 else 0, shape.head_dim)
    part = torch.empty(scratch, dtype=torch.float32, device=span.device)
    ends = torch.empty((2, scratch[0]), dtype=torch.float32, device=span.device)
    return Tiles(span, token, rows, splits, part, ends[0], ends[1])


def _check(shape: Shape) -> None:
    if shape.dtype == "float64":
        raise InputError("the GPU kernel has no float64", where="dtype", value=shape.dtype)
    if shape.head_dim % 16:
        raise InputError(
            "the GPU kernel takes multiples of 16", where="head_dim", value=shape.head_dim
        )


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
