"""Decode steps as CUDA graphs: captured once a batch size, replayed without launch overhead."""

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor

from kvsim.backend.step import Batch, Span
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.stores.store import Address
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.triton_attention import Plan, launch

CAPTURE_SIZES = (1, 2, 4, *range(8, 257, 8))
NULL_BLOCK = 0  # rows that pad a batch write here; no sequence may own it


def capture_size(num_decode: int) -> int | None:
    """The least captured batch size that holds `num_decode`; None beyond the largest."""
    return next((size for size in CAPTURE_SIZES if size >= num_decode), None)


class DecodeGraph:
    """One captured decode step of `size` sequences of at most `max_context` tokens on a store."""

    @torch.inference_mode()
    def __init__(self, decoder: Decoder, store: PagedStore, size: int, max_context: int) -> None:
        self.decoder = decoder
        self.store = store
        self.size = size
        idle = Batch.pack([Span(str(at), [0], 0) for at in range(size)], decoder.device)
        self._token_ids = idle.token_ids
        self._plan = Plan.of(idle, decoder.shape)
        pages = -(-max_context // store.block_size)
        self._table = torch.full(
            (size, pages), NULL_BLOCK, dtype=torch.int32, device=decoder.device
        )
        self._graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # compiles kernels and sets up libraries outside the capture
            for _ in range(3):
                self._forward()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self._graph):
            self._logits = self._forward()

    def _forward(self) -> Tensor:
        shape, rows, page = self.decoder.shape, self.store.pool.rows, self.store.block_size

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            address = Address(rows[layer, 0], rows[layer, 1], table=self._table, page=page)
            return launch(shape, self._plan, address, query, key, value)

        hidden = self.decoder.hidden(self._token_ids, self._plan.positions, attend)
        return self.decoder.logits(hidden)

    @torch.inference_mode()
    def load(self, spans: Sequence[Span]) -> Self:
        """Bring a decode step of at most `size` spans, one token each, to the device."""
        page = self.store.block_size
        tokens = np.zeros(self.size, dtype=np.int64)
        start = np.zeros(self.size, dtype=np.int64)
        table = np.full(tuple(self._table.shape), NULL_BLOCK, dtype=np.int32)
        for row, span in enumerate(spans):
            tokens[row], start[row] = span.tokens[0], span.start
            pages = -(-span.context // page)
            table[row, :pages] = span.blocks[:pages]
        self._token_ids.copy_(torch.from_numpy(tokens))
        self._plan.positions.copy_(torch.from_numpy(start))
        self._plan.span_start.copy_(torch.from_numpy(start))
        self._table.copy_(torch.from_numpy(table))
        self._used = len(spans)
        return self

    def replay(self) -> Tensor:
        """Logits [spans, vocab] of the loaded step; a view that the next replay overwrites."""
        self._graph.replay()
        return self._logits[: self._used]
