"""A model: bytes of its weights, FLOPs and KV cache bytes of a token."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kvsim.layout import KVLayout
from kvsim.model.hf.config_file import fields_from_hf
from kvsim.model.kv_cache import LayerCache, grouped, layer_caches
from kvsim.model.layers import (
    Attention,
    CompressedAttention,
    Experts,
    LatentAttention,
    Layer,
    Recurrence,
)
from kvsim.model.target_reader import TargetReader
from kvsim.model.tower import Tower, Vision
from kvsim.model.weights import WeightFormat, Weights
from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    from kvsim.model.checkpoint.headers import Tensor
    from kvsim.model.checkpoint.stored import StoredWeights


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder-only language model.

    layers: one entry per layer, in order. max_position_embeddings: longest sequence, in tokens.
    torch_dtype: of activations and, unless quantised, of weights ("bfloat16", ...). weight_format:
    bits per stored parameter. tie_word_embeddings: the output head is the embedding. extra_params:
    final norm, learned positions, biases of the head. source: where the figures come from. kind:
    the config's model_type ("" if it has none). tower_params: parameters of vision and audio
    towers, which tensor parallel GPUs share. tower: the vision tower, if its working memory is
    modelled; vision: sizes of any vision tower. rotary_elements: elements of the rotary tables; 0:
    positions are learned or absent. mrope: positions are of time, height and width, for which vLLM
    may make longer tables. hidden_streams: residual states of a token (DeepSeek-V4's
    hyper-connections). kv_cache_dtype: dtype that the checkpoint requests, "auto" if none (then it
    is torch_dtype). target_reader: how a drafter reads hidden states of its target. stored: bytes
    of the checkpoint, by its headers; None: computed from weight_format.
    """

    name: str
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    torch_dtype: str
    layers: tuple[Layer, ...]
    weight_format: WeightFormat
    tie_word_embeddings: bool
    extra_params: int
    source: str
    kind: str = ""
    tower_params: int = 0
    tower: Tower | None = None
    vision: Vision | None = None
    rotary_elements: int = 0
    mrope: bool = False
    kv_cache_dtype: str = "auto"
    hidden_streams: int = 1
    target_reader: TargetReader | None = None
    stored: "StoredWeights | None" = None

    @classmethod
    def from_hf(cls, config: Mapping[str, Any] | Path, name: str | None = None) -> Self:
        """A model from a Hugging Face config.json (its path, or its content as a mapping).

        A checkpoint in the file's folder gives the size of its weights.

        name: what to call it (default: its `_name_or_path`, or the folder of the file).
        Raises InputError on a file that cannot be read, a missing key or an unknown architecture.
        """
        found = cls(**fields_from_hf(config, name))
        if not isinstance(config, Path):
            return found
        from kvsim.model.checkpoint.find import beside  # built-in models have no checkpoint

        return found.with_tensors(beside(config))

    def with_tensors(self, tensors: "Mapping[str, Tensor]") -> Self:
        """A copy of the model with the weights of a checkpoint; the same model if there are no
        tensors.
        """
        if not tensors:
            return self
        from kvsim.model.checkpoint.stored import stored_weights  # as above

        tied = self.tie_word_embeddings
        stored = stored_weights(tensors, self.layers, self.torch_dtype, tied=tied)
        source = f"{self.source}, weights by the checkpoint's headers"
        return replace(self, stored=stored, source=source)

    @property
    def num_layers(self) -> int:
        """Number of decoder layers."""
        return len(self.layers)

    @property
    def is_sparse(self) -> bool:
        """Whether any layer is a mixture of experts."""
        return any(isinstance(layer.feed_forward, Experts) for layer in self.layers)

    def without_towers(self) -> "Model":
        """The model with only its text decoder."""
        stored = self.stored and self.stored.without_towers()
        return replace(self, tower_params=0, tower=None, vision=None, stored=stored)

    @property
    def is_recurrent(self) -> bool:
        """Whether any layer keeps a recurrent state."""
        return any(isinstance(layer.mixer, Recurrence) for layer in self.layers)

    @property
    def is_quantized(self) -> bool:
        """Whether any weights are stored in another format than the model's dtype."""
        return self.weight_format != WeightFormat.plain(self.torch_dtype)

    def drafting_bytes(self, tensor_parallel_size: int = 1) -> int | None:
        """Bytes on one GPU of the model's own draft module (MTP); None if no checkpoint gives
        them.
        """
        return None if self.stored is None else self.stored.drafting_bytes(tensor_parallel_size)

    @property
    def attention(self) -> Attention | LatentAttention:
        """The first attention layer's shape (that of all, in most models)."""
        for layer in self.layers:
            if isinstance(layer.mixer, Attention | LatentAttention):
                return layer.mixer
        raise InputError("the model has no attention layer and so no KV cache", where=self.name)

    def check_tensor_parallel(self, tp: int) -> None:
        """Raise InputError unless every layer can be split over `tp` GPUs."""
        for mixer in {layer.mixer for layer in self.layers}:
            if not isinstance(mixer, Attention | LatentAttention | CompressedAttention):
                continue
            if mixer.heads % tp:
                raise InputError(
                    "the query heads cannot be split evenly",
                    where="tensor_parallel_size",
                    value=tp,
                    limit=f"a divisor of {mixer.heads} heads",
                )
            if isinstance(mixer, Attention) and mixer.kv_heads % tp and tp % mixer.kv_heads:
                raise InputError(
                    "the KV heads can be neither split nor replicated evenly",
                    where="tensor_parallel_size",
                    value=tp,
                    limit=f"a divisor or a multiple of {mixer.kv_heads} KV heads",
                )

    def check_decode_context(self, tp: int, shared: int) -> None:
        """Raise InputError unless `shared` of the `tp` GPUs can share the tokens of a sequence
        (decode context parallelism; vLLM 0.33, config/model.py `verify_with_parallel_config`).

        Only GPUs that would hold copies of the same KV heads can share tokens; latents (MLA) are
        the same on all GPUs.
        """
        mixers = {layer.mixer for layer in self.layers}
        heads = {(mixer.heads, mixer.kv_heads) for mixer in mixers if isinstance(mixer, Attention)}
        if shared == 1 or any(isinstance(mixer, LatentAttention) for mixer in mixers):
            return
        for query_heads, kv_heads in heads:
            if shared > tp // kv_heads or tp <= kv_heads or query_heads // kv_heads % shared:
                raise InputError(
                    "fewer GPUs than that hold the same KV heads",
                    where="decode_context_parallel_size",
                    value=shared,
                    limit=f"{max(1, tp // kv_heads)}: {tp} GPUs for {kv_heads} KV heads, and a "
                    f"divisor of {query_heads // kv_heads} query heads a KV head",
                    remedy="lower it, raise tensor_parallel_size, or take a model with latents",
                )

    def weights(self, tensor_parallel_size: int = 1) -> Weights:
        """Parameters one GPU holds, by kind; a tied output head is stored once."""
        self.check_tensor_parallel(tensor_parallel_size)
        reader = self.target_reader
        table = 0 if reader else self.vocab_size * self.hidden_size
        head = 0 if self.tie_word_embeddings else table
        split = (self.tower_params + table + head) // tensor_parallel_size
        total = Weights(other=split + self.extra_params, head=head // tensor_parallel_size)
        if reader is not None:
            total += reader.weights(self.layers, self.hidden_size, tensor_parallel_size)
        for layer, count in Counter(self.layers).items():
            one = layer.weights(self.hidden_size, tensor_parallel_size)
            total += one.times(count)
        return total

    @property
    def num_params(self) -> int:
        """Total number of parameters."""
        return self.weights().total

    @property
    def num_active_params(self) -> int:
        """Number of parameters one token uses: all except experts to which it is not routed."""
        all_of_them = self.weights()
        linear = sum(layer.feed_forward.active(self.hidden_size) for layer in self.layers)
        mixers = sum(layer.mixer.weights(self.hidden_size, 1).linear for layer in self.layers)
        return linear + mixers + all_of_them.other

    def weight_bytes(self, tensor_parallel_size: int = 1, data_parallel_size: int = 1) -> int:
        """Bytes of the weights on one GPU.

        data_parallel_size: copies of the attention; all their GPUs share the experts.
        """
        tp, shards = tensor_parallel_size, tensor_parallel_size * data_parallel_size
        held = self.weights(tp)
        if self.stored is not None:
            return self.stored.num_bytes(tp, shards)
        shared = replace(held, expert=held.expert // data_parallel_size)
        return self.weight_format.num_bytes(shared)

    @property
    def matmul_flops_per_token(self) -> int:
        """2 * P: FLOPs of one token in the matrices of all layers, without attention and output
        head.
        """
        return 2 * sum(
            layer.mixer.weights(self.hidden_size, 1).linear
            + layer.feed_forward.active(self.hidden_size)
            for layer in self.layers
        )

    @property
    def logits_flops(self) -> int:
        """FLOPs of the output head for one sampled token."""
        return 2 * self.hidden_size * self.vocab_size

    def attention_flops(self, contexts: Iterable[int]) -> int:
        """FLOPs of attention for queries that see contexts[i] tokens each (themselves included).

        4 * c * H * D per layer; a sliding window caps c. The keys and values are taken as
        expanded for MLA.
        """
        seen = list(contexts)
        total = 0
        for mixer, count in Counter(layer.mixer for layer in self.layers).items():
            if isinstance(mixer, Attention | LatentAttention):
                window = mixer.window_tokens if isinstance(mixer, Attention) else None
                pairs = sum(seen) if window is None else sum(min(c, window) for c in seen)
                total += count * pairs * mixer.prefill_flops_per_pair()
        return total

    def kv_layout(
        self,
        kv_cache_dtype: str = "auto",
        tensor_parallel_size: int = 1,
        scale_group_size: int | None = None,
        scale_bytes: int | None = None,
    ) -> KVLayout:
        """KV cache bytes on one GPU by layer group; arguments as of `kv_caches`."""
        return grouped(
            self.kv_caches(kv_cache_dtype, tensor_parallel_size, scale_group_size, scale_bytes)
        )

    def kv_caches(
        self,
        kv_cache_dtype: str = "auto",
        tensor_parallel_size: int = 1,
        scale_group_size: int | None = None,
        scale_bytes: int | None = None,
    ) -> tuple[LayerCache, ...]:
        """The KV cache of each layer on one GPU; InputError for an impossible split or dtype."""
        self.check_tensor_parallel(tensor_parallel_size)
        return layer_caches(
            self.layers,
            self.torch_dtype,
            self.kv_cache_dtype if kv_cache_dtype == "auto" else kv_cache_dtype,
            tensor_parallel_size,
            scale_group_size,
            scale_bytes,
        )
