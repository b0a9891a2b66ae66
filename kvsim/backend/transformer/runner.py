"""The runner executes engine steps: moves, then all spans at once, then their last logits."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, Self

import torch
from torch import Tensor

from kvsim.backend.devices import device_of
from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.devices.staging import Array, Staging
from kvsim.backend.shape import Shape
from kvsim.backend.step import Batch, Move, TokenSpan
from kvsim.backend.stores.store import TensorStore
from kvsim.backend.transformer.attention import GatherAttention
from kvsim.backend.transformer.attentions import ATTENTIONS, AttentionForm
from kvsim.backend.transformer.decoder import Attend, Decoder
from kvsim.backend.transformer.graphs import StepGraphs
from kvsim.backend.transformer.tiles import MOST_SPLITS, KernelAttention, Launch

STAGING_BYTES = 8 << 20  # of index tensors; a step of 8,192 tokens needs a tenth of it


class PreparedStep(NamedTuple):
    """A step with its tokens and slot indices on the device."""

    batch: Batch
    attend: Attend


class DecoderRunner:
    """A decoder that runs steps on a store. attention: one of `ATTENTIONS`, by default the device's
    own; InputError where it does not run this shape on this store.

    graphs: captured steps, which `step` replays where they hold it. staging: what brings index
    tensors to the device for a kernel, by default one where the device pins memory.
    """

    def __init__(
        self,
        decoder: Decoder,
        store: TensorStore,
        attention: AttentionKind | None = None,
        *,
        staging: Staging | None = None,
    ) -> None:
        device = device_of(decoder.device)
        self.decoder = decoder
        self.store = store
        self.attention: AttentionKind = attention or device.attention
        self.graphs: StepGraphs | None = None
        self.device = device
        self._form = ATTENTIONS[self.attention]
        self._form.check(self.attention, decoder.shape, store)
        self._launch = self._form.launch()
        self._between = self._form.between()
        if staging is None and device.pins and self._launch is not None:
            staging = Staging(device, STAGING_BYTES)
        self._staging = staging

    def with_graphs(self, max_context: int, steps: Iterable[Iterable[int]] = ()) -> Self:
        """Replay captured steps from now on, of sequences up to `max_context` tokens; those that
        hold `steps` (new tokens by span) are captured now. Nothing changes where the attention or
        the store cannot be captured.
        """
        captures = self._form.captures
        if self._launch is not None and self.store.captures and captures != "no":
            self.graphs = StepGraphs(
                self.decoder,
                self.store,
                self._launch,
                self._between,
                max_context,
                self.device,
                decodes_only=captures == "decode",
            )
            self.graphs.capture(steps)
        return self

    def warm(self, spans: Sequence[TokenSpan]) -> None:
        """Run `spans` in every variant a kernel is compiled in, so that none is compiled later."""
        self.step(spans)
        splits = 1
        while self._launch is not None and splits <= MOST_SPLITS:
            self.run(self.prepare(spans, splits=splits))
            splits *= 2
        if self.graphs is not None:
            self.graphs.num_replayed = self.graphs.num_eager = 0

    def step(self, spans: Sequence[TokenSpan], moves: Sequence[Move] = ()) -> Tensor:
        """Logits [spans, vocab] of each span's last token. Writes the spans' KV into the store.

        Their places must hold what earlier steps wrote for positions below `start`.
        """
        if self.graphs is not None:
            self._move(moves)
            moves = ()
            logits = self.graphs.run(spans)
            if logits is not None:
                return logits
        return self.run(self.prepare(spans, moves))

    @torch.inference_mode()
    def prepare(
        self, spans: Sequence[TokenSpan], moves: Sequence[Move] = (), splits: int | None = None
    ) -> PreparedStep:
        """Do the moves and bring tokens and places to the device; the store is set on this step
        until the next `prepare`. splits: number of splits of the keys; by default the kernel
        chooses.
        """
        self._move(moves)
        if self._staging is not None:
            self._staging.clear()
        batch = Batch.pack(spans, self._put)
        self.store.begin(batch)
        attend = _attend(self._form, self._launch, self.decoder.shape, self.store, batch, splits)
        if self._staging is not None:
            self._staging.send()
        return PreparedStep(batch, attend)

    @torch.inference_mode()
    def run(self, prepared: PreparedStep) -> Tensor:
        """Compute a prepared step, as `step`; again and again with the same result."""
        return self.decoder.logits(self._hidden(prepared)[prepared.batch.last])

    @torch.inference_mode()
    def all_logits(self, spans: Sequence[TokenSpan]) -> list[Tensor]:
        """Run a step as `step`, with the logits [new tokens, vocab] of every token, span
        by span.
        """
        prepared = self.prepare(spans)
        logits = self.decoder.logits(self._hidden(prepared))
        return [logits[first:end] for first, end in pairwise(prepared.batch.begin)]

    def _hidden(self, prepared: PreparedStep) -> Tensor:
        batch, attend = prepared
        return self.decoder.hidden(batch.token_ids, attend, self._between)

    @torch.inference_mode()
    def _move(self, moves: Sequence[Move]) -> None:
        for move in moves:
            self.store.move(move)

    def _put(self, array: Array) -> Tensor:
        if self._staging is not None:
            return self._staging.put(array)
        return torch.from_numpy(array).to(self.decoder.device)


def attend_of(
    kind: AttentionKind, shape: Shape, store: TensorStore, spans: Sequence[TokenSpan], device: str
) -> Attend:
    """The attention of one step of these spans, without a decoder; it may be called repeatedly."""

    def put(array: Array) -> Tensor:
        return torch.from_numpy(array).to(device)

    form, batch = ATTENTIONS[kind], Batch.pack(spans, put)
    form.check(kind, shape, store)
    store.begin(batch)
    return _attend(form, form.launch(), shape, store, batch)


def _attend(
    form: AttentionForm,
    launch: Launch | None,
    shape: Shape,
    store: TensorStore,
    batch: Batch,
    splits: int | None = None,
) -> Attend:
    """The attention of the step that `store` has begun. launch: the form's kernel; None: gather."""
    if launch is None:
        return GatherAttention(shape, store, batch, together=form.together)
    return KernelAttention(launch, shape, store, batch, splits)
