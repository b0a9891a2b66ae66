"""Tiles of query rows: the index tensors of an attention kernel."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from kvsim.backend.devices.staging import Array
from kvsim.backend.shape import DTYPE_BYTES, Shape
from kvsim.backend.step import Batch
from kvsim.backend.stores.store import Address, TensorStore
from kvsim.plumbing.errors import InputError

DECODE_ROWS = 16  # the least a matrix unit takes; a decoding span fills `group` of them
PREFILL_ROWS = 128  # a tile reads K and V once for all of its rows
# Of a decode step some four waves of a large chip: where contexts differ, the longest shall not
# run on alone. Of chunks one: their tiles are of equal work, and their parts are large.
DECODE_PROGRAMS = 2048
PREFILL_PROGRAMS = 512
MOST_SPLITS = 64
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

    @classmethod
    def of(
        cls, span: Tensor, token: Tensor, rows: int, shape: Shape, splits: int | None = None
    ) -> Self:
        """Tiles with their scratch.

        splits: of the keys, by default as many as fill a large chip. They depend on the number of
        tiles alone, never on a context: a captured graph fixes them.
        """
        programs = len(span) * shape.kv_heads
        if splits is None:
            wanted = PREFILL_PROGRAMS if rows >= PREFILL_ROWS else DECODE_PROGRAMS
            splits = min(MOST_SPLITS, 1 << max(0, (wanted // programs).bit_length() - 1))
        scratch = (programs * splits * rows if splits > 1 else 0, shape.head_dim)
        part = torch.empty(scratch, dtype=torch.float32, device=span.device)
        ends = torch.empty((2, scratch[0]), dtype=torch.float32, device=span.device)
        return cls(span, token, rows, splits, part, ends[0], ends[1])


class RaggedSpans(NamedTuple):
    """Spans of a step as kernels of libraries take them. new, context: tokens of each, on the host.
    begins, context_begins: int32 [spans + 1], the sums of these before each span, and of all.
    """

    new: tuple[int, ...]
    context: tuple[int, ...]
    begins: Tensor
    context_begins: Tensor


class KernelPlan(NamedTuple):
    """The index tensors of a step, the same for all its layers.

    positions: int64 [tokens]; token_span: int32 [tokens]; span_begin, span_new, span_start,
    span_context: int32 [spans]: first row, new tokens, tokens before them, and both together.
    ragged: None in a captured step, where spans change from replay to replay.
    """

    positions: Tensor
    token_span: Tensor
    span_begin: Tensor
    span_new: Tensor
    span_start: Tensor
    span_context: Tensor
    tiles: tuple[Tiles, ...]
    ragged: RaggedSpans | None = None

    @classmethod
    def of(cls, batch: Batch, shape: Shape, splits: int | None = None) -> Self:
        """The plan of a batch; one set of tiles for its decoding spans, one for its chunks."""
        new = np.diff(batch.begin)

        def put(values: Array) -> Tensor:
            return batch.put(values.astype(np.int32))

        def tiles() -> Iterator[Tiles]:
            for decoding in (True, False):
                per_tile = tokens_a_tile(shape, decoding=decoding)
                spans = np.flatnonzero((new == 1) == decoding)
                counts = -(-new[spans] // per_tile)
                if not counts.size:
                    continue
                first = np.concatenate([np.arange(count) for count in counts]) * per_tile
                rows = rows_a_tile(shape, decoding=decoding)
                yield Tiles.of(put(np.repeat(spans, counts)), put(first), rows, shape, splits)

        begins, context = put(np.asarray(batch.begin)), np.asarray(batch.context)
        return cls(
            positions=batch.positions,
            token_span=put(np.repeat(np.arange(len(new)), new)),
            span_begin=begins[:-1],
            span_new=put(new),
            span_start=put(np.asarray(batch.start)),
            span_context=put(context),
            tiles=tuple(tiles()),
            ragged=RaggedSpans(
                tuple(new.tolist()),
                tuple(batch.context),
                begins,
                put(np.concatenate(([0], context.cumsum()))),
            ),
        )


Launch = Callable[[Shape, KernelPlan, Address, Tensor, Tensor, Tensor], Tensor]
"""A kernel: (shape, plan, address of a layer, query, key, value) to what `Attend` promises."""


class KernelAttention:
    """An `Attend` for one step, over any store that can tell a kernel where K and V are."""

    def __init__(
        self,
        launch: Launch,
        shape: Shape,
        store: TensorStore,
        batch: Batch,
        splits: int | None = None,
    ) -> None:
        check_shape(shape)
        store.locate()
        self._launch = launch
        self._shape = shape
        self._store = store
        self._plan = KernelPlan.of(batch, shape, splits)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Attend`."""
        self._store.receive(key, value)
        return self._launch(self._shape, self._plan, self._store.address(layer), query, key, value)


def rows_a_tile(shape: Shape, *, decoding: bool) -> int:
    """Query rows of a tile: `group` for each of its tokens."""
    return max(DECODE_ROWS if decoding else PREFILL_ROWS, power_of_two(shape.group))


def tokens_a_tile(shape: Shape, *, decoding: bool) -> int:
    """Most tokens of one span in a tile."""
    return rows_a_tile(shape, decoding=decoding) // shape.group


def key_tile(shape: Shape) -> int:
    """Keys that a program processes in one step of its loop."""
    row_bytes = power_of_two(shape.head_dim) * DTYPE_BYTES[shape.dtype]
    return max(16, min(64, KEY_TILE_BYTES // row_bytes))


def check_shape(shape: Shape) -> None:
    """Raise InputError for a shape that the kernels do not support."""
    if shape.dtype == "float64":
        raise InputError("the GPU kernel has no float64", where="dtype", value=shape.dtype)
    if shape.head_dim % 16:
        raise InputError(
            "the GPU kernel takes multiples of 16", where="head_dim", value=shape.head_dim
        )


def power_of_two(least: int) -> int:
    """The least power of two that is not below `least`."""
    return 1 << (least - 1).bit_length()
