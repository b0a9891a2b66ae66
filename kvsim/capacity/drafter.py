"""Memory of a drafter: its weights and its KV cache.

A model that reads the target (`TargetReader`: EAGLE-3, DFlash) has the target's embedding. A head
that is part of the target's checkpoint is "mtp"; "eagle" without a named model is modelled the
same. It is one more layer of the target's last kind and a projection of two hidden states into one,
with the target's embedding and head. "ngram" looks drafts up in the text: it has neither weights
nor a cache.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from kvsim.layout import KVLayout
from kvsim.model import Model, ModelOptions
from kvsim.model.kv_cache import LayerCache, grouped, layer_caches, widened
from kvsim.model.layers import Absent, Attention, CompressedAttention, LatentAttention, Layer
from kvsim.model.weights import WeightFormat, Weights
from kvsim.speculation import Speculation

MTP = "mtp"
OTHER_METHODS = ("eagle", "eagle3", "dflash", "draft_model", "ngram")
# Copies in fewer bits leave the target's own module in its dtype: a log of Qwen3.6-27B-NVFP4 has
# 19.78 GiB without it and 20.57 with it.
PLAIN_BELOW_BITS = 8


class DrafterCost(NamedTuple):
    """Memory of drafting on one GPU, outside the pool and in it.

    weights_bytes: bytes of the drafter's weights. bytes_per_token: KV bytes that its layers add to
    the target's. state_bytes: bytes that drafts add to each sequence's recurrent states, which get
    wider, with one scratch state per draft. slots: KV slots that each sequence holds past a step.
    """

    method: str
    num_speculative_tokens: int
    weights_bytes: int
    bytes_per_token: int
    state_bytes: int
    slots: int

    def text(self) -> str:
        """The cost in one sentence."""
        states = ""
        if self.state_bytes:
            states = f", {self.state_bytes:,} bytes more of recurrent states for each sequence"
        return (
            f"Drafting ({self.method}, {self.num_speculative_tokens} tokens) takes "
            f"{self.weights_bytes:,} bytes of weights, {self.bytes_per_token:,} bytes more of KV "
            f"per token{states}, and {self.slots} slots past every step of a sequence."
        )


class Drafter(NamedTuple):
    """The drafter of a deployment. model: its checkpoint; None for a module of the target (MTP) or
    for drafts looked up in the text.
    """

    model: Model | None
    speculation: Speculation

    @property
    def tokens(self) -> int:
        """num_speculative_tokens: tokens drafted for each step."""
        return self.speculation.tokens

    @property
    def method(self) -> str:
        """The method of a drafter that reads its target, by its config; else that of
        `speculation`.
        """
        reader = None if self.model is None else self.model.target_reader
        return self.speculation.method if reader is None else reader.method

    @property
    def looks_up(self) -> bool:
        """Whether drafts are looked up in the text, without layers."""
        return self.speculation.rules.looks_up

    def weight_bytes(self, target: Model, tp: int) -> int:
        """Bytes of the drafter's weights on one of tp GPUs."""
        if self.looks_up:
            return 0
        if self.model is not None:
            return self.model.weight_bytes(tp)
        stored = target.drafting_bytes(tp)
        if stored is not None:
            return stored
        layer = _module(target)
        joined = Weights(linear=2 * target.hidden_size**2)
        form = target.weight_format
        if form.linear_bits < PLAIN_BELOW_BITS:
            form = WeightFormat.plain(target.torch_dtype)
        return form.num_bytes(layer.weights(target.hidden_size, tp) + joined)

    def caches(self, target: Model, kv_cache_dtype: str, tp: int) -> tuple[LayerCache, ...]:
        """The KV caches of the drafter's layers on one GPU."""
        if self.looks_up:
            return ()
        if self.model is not None:
            return self.model.kv_caches(kv_cache_dtype, tp)
        return layer_caches([_module(target)], target.torch_dtype, kv_cache_dtype, tp)

    def caches_beside(self, target: Model, options: ModelOptions) -> tuple[LayerCache, ...]:
        """The KV caches of its layers on one GPU, in the dtype of the target's."""
        asked = options.kv_cache_dtype
        dtype = target.kv_cache_dtype if asked == "auto" else asked
        return self.caches(target, dtype, options.tensor_parallel_size)

    def layout(
        self,
        target: Model,
        options: ModelOptions,
        held: Model | None = None,
        *,
        drafts: bool = True,
        by_chunk: bool = False,
    ) -> KVLayout:
        """The KV cache of target and drafter together, on one GPU; by_chunk: as in
        `ModelOptions.layout`. held: the part of the target on a stage of a pipeline; drafts:
        whether the drafter is on this stage too.
        """
        drafted = self.caches_beside(target, options) if drafts else ()
        caches = widened(options.caches(held or target), self.tokens)
        return grouped(caches, drafted, by_chunk=by_chunk)

    def cost(self, target: Model, caches: Sequence[LayerCache], dtype: str, tp: int) -> DrafterCost:
        """Memory that the drafter takes on one GPU, with a target of these layer caches and this
        dtype.
        """
        own = sum(cache.state_bytes for cache in caches)
        wide = sum(cache.state_bytes for cache in widened(caches, self.tokens))
        return DrafterCost(
            self.method,
            self.tokens,
            self.weight_bytes(target, tp),
            sum(cache.bytes_per_token for cache in self.caches(target, dtype, tp)),
            wide * (1 + self.tokens) - own,
            self.speculation.tokens + self.speculation.lookahead_slots,
        )

    def as_model(self, target: Model) -> Model:
        """The drafter as a model, to time its forward passes."""
        if self.model is not None:
            return self.model
        layers = (_module(target),)
        name = f"{target.name}'s head"
        return replace(target.without_towers(), name=name, layers=layers, extra_params=0)


def _module(target: Model) -> Layer:
    """The layer of an MTP head: the target's last full-attention mixer with its last feed-forward
    part. A compressed attention mixer keeps its sliding window alone.
    """
    attending = [
        layer
        for layer in target.layers
        if isinstance(layer.mixer, LatentAttention)
        or (isinstance(layer.mixer, Attention) and layer.mixer.window_tokens is None)
    ]
    fed = [layer for layer in target.layers if not isinstance(layer.feed_forward, Absent)]
    mixer = (attending or list(target.layers))[-1].mixer
    if isinstance(mixer, CompressedAttention):
        mixer = mixer.without_compression()
    return Layer(mixer, (fed or list(target.layers))[-1].feed_forward)
