"""Steps captured in CUDA graphs once and replayed, without launching kernel by kernel.

A graph has a size: rows of tokens, decoding spans, chunks. A step replays the least size that holds
it. Its index tensors are filled up with padding rows and tiles, which write to a slot that no
sequence owns. What holds no size runs launch by launch.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kvsim.backend.devices.device import Captured, TorchDevice
from kvsim.backend.devices.staging import Array, Staging
from kvsim.backend.shape import Shape
from kvsim.backend.step import TokenSpan
from kvsim.backend.stores.store import FixedPlaces, TensorStore
from kvsim.backend.transformer.between import Between
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.tiles import (
    KernelPlan,
    Launch,
    Tiles,
    check_shape,
    rows_a_tile,
    tokens_a_tile,
)

DECODE_SIZES = (1, 2, 4, *range(8, 257, 8))
TILE = 64  # tokens with chunks among them come in multiples of this
MOST_TOKENS = 512  # beyond, the device has more to do than the host to launch
MOST_CHUNKS = 8


class GraphSize(NamedTuple):
    """Size of a graph. tokens: rows. decodes, chunks: spans of one token, and of more. tiles: query
    tiles of the chunks.
    """

    tokens: int
    decodes: int
    chunks: int = 0
    tiles: int = 0

    @classmethod
    def holding(cls, shape: Shape, new_tokens: Iterable[int]) -> "GraphSize | None":
        """The least size that holds spans of new_tokens[i] tokens; None beyond the largest."""
        news = list(new_tokens)
        decodes, tokens = news.count(1), sum(news)
        chunks = len(news) - decodes
        if not chunks:
            size = next((size for size in DECODE_SIZES if size >= decodes), None)
            return None if size is None else cls(size, size)
        if tokens > MOST_TOKENS or chunks > MOST_CHUNKS or decodes > DECODE_SIZES[-1]:
            return None
        tokens = -(-tokens // TILE) * TILE
        decodes = 1 << (decodes - 1).bit_length() if decodes else 0
        tiles = -(-tokens // tokens_a_tile(shape, decoding=False)) + MOST_CHUNKS
        return cls(tokens, decodes, MOST_CHUNKS, tiles)

    @property
    def spans(self) -> int:
        """Spans it has a place for, without the padding one."""
        return self.decodes + self.chunks


class StepGraph:
    """The CUDA graph of one step size, on one store."""

    @torch.inference_mode()
    def __init__(
        self,
        decoder: Decoder,
        store: TensorStore,
        launch: Launch,
        between: Between,
        size: GraphSize,
        max_context: int,
        device: TorchDevice,
        pool: object,
    ) -> None:
        shape = decoder.shape
        check_shape(shape)
        self.size = size
        self._decoder = decoder
        self._launch = launch
        self._between = between
        self._per_tile = tokens_a_tile(shape, decoding=False)
        spans = size.spans + 1  # the last is padding: rows and tiles without work are its
        self._staging = Staging(device, _bytes_of(size, store.place_bytes(max_context)))
        self._host: dict[str, Array] = {}

        def fixed(name: str, count: int, dtype: type[np.signedinteger] = np.int32) -> Tensor:
            self._host[name], there = self._staging.reserve((count,), dtype)
            return there

        self._token_ids = fixed("token_ids", size.tokens, np.int64)
        positions = fixed("positions", size.tokens, np.int64)
        self._last = fixed("last", size.spans, np.int64)
        token_span = fixed("token_span", size.tokens)
        begin, new, start, context = (
            fixed(name, spans) for name in ("begin", "new", "start", "context")
        )
        tiles = []
        for decoding, count in ((True, size.decodes), (False, size.tiles)):
            if count:
                kind = "decode" if decoding else "chunk"
                span, token = fixed(f"{kind}_span", count), fixed(f"{kind}_token", count)
                tiles.append(Tiles.of(span, token, rows_a_tile(shape, decoding=decoding), shape))
        self._plan = KernelPlan(positions, token_span, begin, new, start, context, tuple(tiles))
        self._places: FixedPlaces = store.fixed_places(spans, max_context, self._staging)
        self._used = 0
        self.load(())
        self._captured: Captured = device.capture(self._forward, pool)

    def _forward(self) -> Tensor:
        shape = self._decoder.shape

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return self._launch(shape, self._plan, self._places.address(layer), query, key, value)

        hidden = self._decoder.hidden(self._token_ids, attend, self._between)
        return self._decoder.logits(hidden[self._last])

    @torch.inference_mode()
    def load(self, spans: Sequence[TokenSpan]) -> "StepGraph":
        """Copy the inputs of a step to the graph's tensors, in one copy."""
        self._staging.wait()
        host, size = self._host, self.size
        for name in ("token_ids", "positions", "last", "begin", "new", "start", "context"):
            host[name][...] = 0
        host["token_span"][...] = size.spans
        for kind in ("decode", "chunk"):
            if f"{kind}_span" in host:
                host[f"{kind}_span"][...] = size.spans
                host[f"{kind}_token"][...] = 0
        self._places.clear()
        row = tile = decodes = chunks = 0
        for order, span in enumerate(spans):
            count = len(span.tokens)
            rows = slice(row, row + count)
            if count == 1:
                index, decodes = decodes, decodes + 1
                host["decode_span"][index] = index
            else:
                index, chunks = size.decodes + chunks, chunks + 1
                first = np.arange(0, count, self._per_tile)
                own = slice(tile, tile + len(first))
                host["chunk_span"][own], host["chunk_token"][own] = index, first
                tile = own.stop
            host["token_ids"][rows] = span.tokens
            host["positions"][rows] = np.arange(span.start, span.context)
            host["token_span"][rows] = index
            host["begin"][index], host["new"][index] = row, count
            host["start"][index], host["context"][index] = span.start, span.context
            host["last"][order] = row + count - 1
            self._places.load(index, span)
            row += count
        self._staging.send()
        self._used = len(spans)
        return self

    @torch.inference_mode()
    def replay(self) -> Tensor:
        """Logits [spans, vocab] of the loaded step; a view that the next replay overwrites."""
        self._captured.replay()
        return self._captured.output[: self._used]


class StepGraphs:
    """The captured steps of one decoder on one store; they share one pool of memory.

    decodes_only: steps with chunks are launched one by one. refused: sizes that the device had no
    memory for. num_captured, num_replayed, num_eager:
    graphs, steps that found one, steps that found none.
    """

    def __init__(
        self,
        decoder: Decoder,
        store: TensorStore,
        launch: Launch,
        between: Between,
        max_context: int,
        device: TorchDevice,
        *,
        decodes_only: bool = False,
    ) -> None:
        self._decodes_only = decodes_only
        self._parts = decoder, store, launch, between
        self._max_context = max_context
        self._device = device
        self._pool = device.graph_pool()
        self._graphs: dict[GraphSize, StepGraph] = {}
        self.refused: set[GraphSize] = set()
        self.num_replayed = 0
        self.num_eager = 0

    @property
    def num_captured(self) -> int:
        """Number of captured sizes."""
        return len(self._graphs)

    def capture(self, steps: Iterable[Iterable[int]]) -> None:
        """Capture the sizes that steps with these new tokens replay, the largest first, so that
        smaller ones reuse its memory.
        """
        shape = self._parts[0].shape
        sizes = {GraphSize.holding(shape, news) for news in steps} - {None, *self._graphs}
        wanted = (size for size in sizes if size and not (size.chunks and self._decodes_only))
        for size in sorted(wanted, reverse=True):
            try:
                self._graphs[size] = StepGraph(
                    *self._parts, size, self._max_context, self._device, self._pool
                )
            except torch.OutOfMemoryError:
                self.refused.add(size)
                self._device.release_unused()

    def find(self, spans: Sequence[TokenSpan]) -> StepGraph | None:
        """The graph that holds a step, if it was captured."""
        if max(span.context for span in spans) > self._max_context:
            return None
        size = GraphSize.holding(self._parts[0].shape, (len(span.tokens) for span in spans))
        return self._graphs.get(size) if size else None

    def run(self, spans: Sequence[TokenSpan]) -> Tensor | None:
        """The logits of a replay; None for a step that no graph holds. Counts both."""
        graph = self.find(spans)
        if graph is None:
            self.num_eager += 1
            return None
        self.num_replayed += 1
        return graph.load(spans).replay()


def _bytes_of(size: GraphSize, place_bytes: int) -> int:
    """Bytes of a graph's index tensors in a staging buffer, alignment included."""
    numbers = 3 * size.tokens + size.spans + 4 * (size.spans + 1) + size.decodes + size.tiles
    return 8 * 2 * numbers + place_bytes * (size.spans + 1) + 1024
