"""Bytes of a checkpoint on one GPU, by how vLLM shards or replicates each tensor.

    split        matrices of the layers, over the tensor parallel GPUs
    keys, values a GPU holds the projections of one head at least
    experts      routed, over all GPUs that share them
    whole        norms, routers, down-projections to a latent (MLA), indexers: on every GPU
    tables       the embedding and the head, by rows, padded to whole 64 (layers/
                 vocab_parallel_embedding.py)
    towers       that see and hear; drafting: modules that a drafter alone loads

Floating tensors are converted to the served dtype at loading, except for scales and the few that
vLLM makes in float32. Integers and 8 bits stay. What it makes itself or drops (tables of rotations,
masks, g_idx) is not counted. Source: vLLM 0.33, model_executor/layers/linear.py and
model_executor/models.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kvsim.model.checkpoint.headers import BITS, Tensor
from kvsim.model.layers import Attention, Layer
from kvsim.model.weights import DTYPE_BYTES
from kvsim.plumbing.units import ceil_div

VOCABULARY_ROWS = 64
FLOATS = ("F16", "BF16", "F32", "F64")
_AS_STORED = re.compile(r"scale|A_log|correction_bias|zero_point|\bqzeros|_zp$")
_DROPPED = re.compile(
    r"inv_freq$|g_idx$|masked_bias$|\.attn\.bias$|position_ids$|weight_shape$|rotary_emb\."
)
_TOWER = re.compile(
    r"(?:^|\.)(?:visual|vision\w*|vit|vpm|resampler|audio\w*|sound\w*|speech\w*|image\w*|mm_\w+|"
    r"multi_modal\w*|multimodal\w*|embed_vision|embed_audio|connector|aligner|projector|"
    r"vit_large_projector|perceiver\w*)\."
)
_DRAFTING = re.compile(r"(?:^|\.)(?:mtp\w*|nextn\w*|eagle\w*|medusa\w*)\.")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block|decoder_layers)\.(\d+)\.(.*)$")
_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens|word_embeddings|wte|tok_embeddings|embeddings?|embed_in|"
    r"embed_tokens_per_layer|embed)\.weight$"
)
_HEAD = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output|output_layer|head)\.\w+$")
_EXPERTS = re.compile(r"(?:^|\.)(?:experts|expert_\w+)\.")
_SHARED = re.compile(r"shared_expert|shared_mlp")
_KEYS_VALUES = re.compile(r"(?:^|\.)(?:k_proj|v_proj|key|value|wk|wv)\.")
_FUSED = re.compile(r"(?:^|\.)(?:qkv_proj|query_key_value|c_attn|wqkv|Wqkv|qkv|att_proj)\.")
_WHOLE = re.compile(
    r"(?:^|\.)(?:gate|router\w*|shared_expert_gate|wq_a|q_a_proj|wkv_a\w*|kv_a_proj\w*|"
    r"fused_qkv_a_proj\w*|indexer|compressor|f_a_proj|g_a_proj|hc_\w+|wkv)\."
)


class LayerBytes(NamedTuple):
    """Bytes of one layer, or of a whole drafter, by how GPUs share them (see the module)."""

    split: int = 0
    keys_values: int = 0
    experts: int = 0
    whole: int = 0

    def on_one(self, tp: int, expert_shards: int, kv_heads: int) -> int:
        """Bytes on one GPU. kv_heads: KV heads of the layer; with more GPUs than heads, heads are
        replicated.
        """
        shared = self.split // tp + self.keys_values // min(tp, max(kv_heads, 1))
        return shared + self.experts // expert_shards + self.whole


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """A checkpoint's bytes as served in one dtype. layers: bytes and KV heads of each decoder
    layer, in order. head: bytes of the output head, 0 if tied to the embedding. rest: bytes outside
    layers, on the last pipeline stage.
    """

    layers: tuple[LayerBytes, ...]
    kv_heads: tuple[int, ...]
    embedding: int
    head: int
    rest: int
    towers: LayerBytes
    drafting: LayerBytes

    def num_bytes(
        self,
        tp: int = 1,
        expert_shards: int | None = None,
        *,
        start: int = 0,
        count: int | None = None,
        towers: bool = True,
        expert_padding: float = 1.0,
    ) -> int:
        """Bytes on one GPU of a pipeline stage with `count` layers from `start` on (None: all
        further layers).

        expert_shards: GPUs that share the experts (None: tp). expert_padding: factor by which
        kernels pad the bytes of experts.
        """
        end = len(self.layers) if count is None else start + count
        first, last = start == 0, end == len(self.layers)
        total = self.rest if last else 0
        if first:
            total += self.embedding // tp
            total += self.towers.on_one(tp, tp, tp) if towers else 0
        if last:
            total += (self.head or (0 if first else self.embedding)) // tp
        shards = expert_shards or tp
        for layer, heads in zip(self.layers[start:end], self.kv_heads[start:end], strict=True):
            padded = layer._replace(experts=int(layer.experts * expert_padding))
            total += padded.on_one(tp, shards, heads)
        return total

    def without_towers(self) -> "StoredWeights":
        """The weights of the text decoder alone."""
        return replace(self, towers=LayerBytes())

    def drafting_bytes(self, tp: int, expert_shards: int | None = None) -> int | None:
        """Bytes of the draft modules on one GPU; None if the checkpoint has none."""
        if self.drafting == LayerBytes():
            return None
        return self.drafting.on_one(tp, expert_shards or tp, max(self.kv_heads, default=1))


def stored_weights(
    tensors: Mapping[str, Tensor], layers: Sequence[Layer], torch_dtype: str, *, tied: bool
) -> StoredWeights:
    """The bytes of a checkpoint by kind, for a model with these layers. tied: the embedding is the
    output head, whatever else is stored.
    """
    by_layer: dict[int, list[tuple[str, int, Tensor]]] = defaultdict(list)
    towers, drafting = [], []
    embedding = head = rest = 0
    for name, tensor in tensors.items():
        if _DROPPED.search(name):
            continue
        size = _served_bytes(name, tensor, torch_dtype)
        layer = _LAYER.search(name)
        if _TOWER.search(name):
            towers.append((name, size, tensor))
        elif _DRAFTING.search(name) or (layer and int(layer[1]) >= len(layers)):
            drafting.append((layer[2] if layer else name, size, tensor))
        elif layer:
            by_layer[int(layer[1])].append((layer[2], size, tensor))
        elif _HEAD.search(name):
            head += 0 if tied else _table_bytes(size, tensor)
        elif _EMBEDDING.search(name):
            embedding += _table_bytes(size, tensor)
        else:
            rest += size
    attending = [layer.mixer for layer in layers if isinstance(layer.mixer, Attention)]
    usual = attending[-1] if attending else None
    return StoredWeights(
        layers=tuple(
            _layer_bytes(by_layer[at], layer.mixer if isinstance(layer.mixer, Attention) else usual)
            for at, layer in enumerate(layers)
        ),
        kv_heads=tuple(
            layer.mixer.kv_heads if isinstance(layer.mixer, Attention) else 1 for layer in layers
        ),
        embedding=embedding,
        head=head,
        rest=rest,
        towers=_tower_bytes(towers),
        drafting=_layer_bytes(drafting, usual),
    )


def _served_bytes(name: str, tensor: Tensor, torch_dtype: str) -> int:
    if tensor.dtype in FLOATS and not _AS_STORED.search(name):
        return tensor.elements * DTYPE_BYTES[torch_dtype]
    return (tensor.elements * BITS[tensor.dtype] + 7) // 8


def _table_bytes(size: int, tensor: Tensor) -> int:
    """Bytes of a table with its rows padded."""
    rows = tensor.shape[0] if tensor.shape else 1
    return size * VOCABULARY_ROWS * ceil_div(rows, VOCABULARY_ROWS) // max(rows, 1)


def _layer_bytes(
    tensors: Iterable[tuple[str, int, Tensor]], attention: Attention | None
) -> LayerBytes:
    split = keys_values = experts = whole = 0
    for name, size, tensor in tensors:
        if _EXPERTS.search(name) and not _SHARED.search(name):
            experts += size
        elif len(tensor.shape) < 2 or _WHOLE.search(name):
            whole += size
        elif _KEYS_VALUES.search(name):
            keys_values += size
        elif _FUSED.search(name) and attention is not None:
            heads = attention.heads + 2 * attention.kv_heads
            part = size * 2 * attention.kv_heads // heads
            keys_values, split = keys_values + part, split + size - part
        else:
            split += size
    return LayerBytes(split, keys_values, experts, whole)


def _tower_bytes(tensors: Iterable[tuple[str, int, Tensor]]) -> LayerBytes:
    split = whole = 0
    for _, size, tensor in tensors:
        if len(tensor.shape) < 2:
            whole += size
        else:
            split += size
    return LayerBytes(split=split, whole=whole)
