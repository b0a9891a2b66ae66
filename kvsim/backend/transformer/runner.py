"""The runner executes engine steps: moves, then all spans at once, then their last logits."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from kvsim.backend.shape import Shape
from kvsim.backend.step import Batch, Move, Span
from kvsim.backend.stores.store import Store
from kvsim.backend.transformer.attention import GatherAttention
from kvsim.backend.transformer.decoder import Attend, Decoder

AttentionKind = Literal["gather", "triton"]


class Prepared(NamedTuple):
    """A step whose tokens and places are on the device."""

    batch: Batch
    attend: Attend


class Runner:
    """A decoder on a store. attention: "gather" runs anywhere, "triton" is the GPU's kernel."""

    def __init__(
        self, decoder: Decoder, store: Store, attention: AttentionKind | None = None
    ) -> None:
        self.decoder = decoder
        self.store = store
        on_gpu = decoder.device.startswith("cuda")
        self.attention = attention or ("triton" if on_gpu else "gather")
        self._attend = _attention(self.attention)

    def step(self, spans: Sequence[Span], moves: Sequence[Move] = ()) -> Tensor:
        """Logits [spans, vocab] of each span's last token. Writes the spans' KV into the store.

        Their places must hold what earlier steps wrote for positions below `start`.
        """
        return self.run(self.prepare(spans, moves))

    @torch.inference_mode()
    def prepare(self, spans: Sequence[Span], moves: Sequence[Move] = ()) -> Prepared:
        """Do the moves and bring tokens and places to the device; the store is set on this step
        until the next `prepare`.
        """
        for move in moves:
            self.store.move(move)
        batch = Batch.pack(spans, self.decoder.device)
        self.store.begin(batch)
        return Prepared(batch, self._attend(self.decoder.shape, self.store, batch))

    @torch.inference_mode()
    def run(self, prepared: Prepared) -> Tensor:
        """Compute a prepared step, as `step`; again and again with the same result."""
        return self.decoder.logits(self._hidden(prepared)[prepared.batch.last])

    @torch.inference_mode()
    def all_logits(self, spans: Sequence[Span]) -> list[Tensor]:
        """As `step`, with the logits [new tokens, vocab] of every token, span by span."""
        prepared = self.prepare(spans)
        logits = self.decoder.logits(self._hidden(prepared))
        return [logits[first:end] for first, end in pairwise(prepared.batch.begin)]

    def _hidden(self, prepared: Prepared) -> Tensor:
        batch, attend = prepared
        return self.decoder.hidden(batch.token_ids, batch.positions, attend)


def _attention(kind: AttentionKind) -> Callable[[Shape, Store, Batch], Attend]:
    if kind == "gather":
        return GatherAttention
    from kvsim.backend.transformer.triton_attention import (
        TritonAttention,  # triton is there only with a GPU
    )

    return TritonAttention
