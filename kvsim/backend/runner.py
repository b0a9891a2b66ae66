"""The runner executes engine steps: copies, then all spans at once, then their last logits."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from kvsim.backend.attention import GatherAttention
from kvsim.backend.decoder import Attend, Decoder
from kvsim.backend.shape import Shape
from kvsim.backend.step import Batch, Copy, Span
from kvsim.backend.stores.store import Store

AttentionKind = Literal["gather", "triton"]


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

    @torch.inference_mode()
    def step(self, spans: Sequence[Span], copies: Sequence[Copy] = ()) -> Tensor:
        """Logits [spans, vocab] of each span's last token. Writes the spans' KV into the store.

        Their places must hold what earlier steps wrote for positions below `start`.
        """
        batch, hidden = self._hidden(spans, copies)
        return self.decoder.logits(hidden[batch.last])

    @torch.inference_mode()
    def all_logits(self, spans: Sequence[Span]) -> list[Tensor]:
        """As `step`, with the logits [new tokens, vocab] of every token, span by span."""
        batch, hidden = self._hidden(spans, ())
        logits = self.decoder.logits(hidden)
        return [logits[first:end] for first, end in pairwise(batch.begin)]

    def _hidden(self, spans: Sequence[Span], copies: Sequence[Copy]) -> tuple[Batch, Tensor]:
        for copy in copies:
            self.store.copy(copy)
        batch = Batch.pack(spans, self.decoder.device)
        self.store.begin(batch)
        attend = self._attend(self.decoder.shape, self.store, batch)
        return batch, self.decoder.hidden(batch.token_ids, batch.positions, attend)


def _attention(kind: AttentionKind) -> Callable[[Shape, Store, Batch], Attend]:
    if kind == "gather":
        return GatherAttention
    from kvsim.backend.triton_attention import TritonAttention  # triton is there only with a GPU

    return TritonAttention
