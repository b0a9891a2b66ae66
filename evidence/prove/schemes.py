"""Four ways to decode, and what each costs: FLOP counted as they run, bytes held.

    scheme       kept a token and layer      work of one step at context c (multiply and add)
    no cache     nothing                     2 P c + 2 c (c + 1) H D L
    K and V      2 d_kv                      2 P + 4 c H D L
    layer input  d                           2 P + 4 c H D L + 4 (c - 1) d d_kv L
    W_Q^T W_K x  H d + d_kv                  2 P + 2 c d H L + 2 c H D L

P: weights of the layers' matrices; d hidden; H heads, D head_dim, d_kv = kv_heads * D; L layers;
c counts the new token. The decoder here has no RoPE: a rotation between W_Q and W_K would forbid
the last scheme. Work of a causal mask is not counted, and so not done: each query meets its own
keys alone.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu
from torch.utils.flop_counter import FlopCounterMode

from kvsim.backend.shape import DTYPE_BYTES, Shape
from kvsim.backend.transformer.between import EPSILON
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.products import plain
from kvsim.backend.transformer.weights import LayerWeights


class Cost(NamedTuple):
    """Cost of decoding. flop: of the last step. kept_bytes: bytes in the cache after it."""

    flop: int
    kept_bytes: int


class Scheme(ABC):
    """A caching scheme of one layer: its state between steps, and how it attends with it."""

    name: str

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.kept: dict[int, list[Tensor]] = {}

    @abstractmethod
    def attend(self, index: int, layer: LayerWeights, x: Tensor) -> Tensor:
        """Attend: x [new, hidden], the layer's normed input, to [new, heads * head_dim]."""

    @staticmethod
    @abstractmethod
    def cost(shape: Shape, context: int) -> Cost:
        """The cost by the formulas above."""

    def remember(self, index: int, *new: Tensor) -> list[Tensor]:
        """Append rows to the cached state of layer `index`; returns the whole state."""
        old = self.kept.get(index)
        self.kept[index] = (
            list(new) if old is None else [torch.cat(pair) for pair in zip(old, new, strict=True)]
        )
        return self.kept[index]

    @property
    def kept_bytes(self) -> int:
        """Bytes of the cached state of all layers."""
        return sum(tensor.nbytes for tensors in self.kept.values() for tensor in tensors)

    def query(self, layer: LayerWeights, x: Tensor) -> Tensor:
        """Queries of x, [new, kv_heads, group, head_dim]."""
        rows = plain(layer.qkv)[: self.shape.heads * self.shape.head_dim]
        return (x @ rows.T).view(len(x), self.shape.kv_heads, self.shape.group, -1)

    def key_value(self, layer: LayerWeights, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of x, [new, kv_heads, head_dim] each."""
        rows = plain(layer.qkv)[self.shape.heads * self.shape.head_dim :]
        both = (x @ rows.T).view(len(x), 2, self.shape.kv_heads, -1)
        return both[:, 0], both[:, 1]

    def mix(self, scores: Tensor, value: Tensor) -> Tensor:
        """One row of attention output. scores: [kv_heads, group, c]. value: [c, kv_heads,
        head_dim].
        """
        share = (scores * self.shape.head_dim**-0.5).softmax(-1)
        return torch.bmm(share, value.transpose(0, 1)).flatten()


class NoCache(Scheme):
    """No cache: every step computes every token again."""

    name = "no cache"

    def attend(self, index: int, layer: LayerWeights, x: Tensor) -> Tensor:
        query = self.query(layer, x)
        key, value = self.key_value(layer, x)
        rows = [
            self.mix(torch.bmm(query[at], key[: at + 1].permute(1, 2, 0)), value[: at + 1])
            for at in range(len(x))
        ]
        return torch.stack(rows)

    @staticmethod
    def cost(shape: Shape, context: int) -> Cost:
        pairs = context * (context + 1) // 2
        attention = 4 * pairs * shape.heads * shape.head_dim * shape.layers
        return Cost(2 * shape.layer_weights * context + attention, 0)


class KeyValue(Scheme):
    """The plain KV cache."""

    name = "K and V"

    def attend(self, index: int, layer: LayerWeights, x: Tensor) -> Tensor:
        key, value = self.remember(index, *self.key_value(layer, x))
        return self.mix(torch.bmm(self.query(layer, x)[0], key.permute(1, 2, 0)), value)[None]

    @staticmethod
    def cost(shape: Shape, context: int) -> Cost:
        attention = 4 * context * shape.heads * shape.head_dim * shape.layers
        kept = 2 * shape.kv_dim * shape.layers * context * DTYPE_BYTES[shape.dtype]
        return Cost(2 * shape.layer_weights + attention, kept)


class LayerInput(Scheme):
    """Caches the layer's input; K and V are projected again in every step."""

    name = "layer input"

    def attend(self, index: int, layer: LayerWeights, x: Tensor) -> Tensor:
        (kept,) = self.remember(index, x)
        key, value = self.key_value(layer, kept)
        return self.mix(torch.bmm(self.query(layer, x)[0], key.permute(1, 2, 0)), value)[None]

    @staticmethod
    def cost(shape: Shape, context: int) -> Cost:
        again = 4 * (context - 1) * shape.hidden * shape.kv_dim * shape.layers
        kept = shape.hidden * shape.layers * context * DTYPE_BYTES[shape.dtype]
        return Cost(KeyValue.cost(shape, context).flop + again, kept)


class Absorbed(Scheme):
    """Caches V and, for every head, W_Q^T W_K x, which scores the new token's x without a
    projection.
    """

    name = "W_Q^T W_K x"

    def attend(self, index: int, layer: LayerWeights, x: Tensor) -> Tensor:
        shape = self.shape
        key, value = self.key_value(layer, x)
        projection = plain(layer.qkv)[: shape.heads * shape.head_dim].view(
            shape.kv_heads, shape.group, shape.head_dim, shape.hidden
        )
        columns = projection.transpose(1, 2).reshape(shape.kv_heads, shape.head_dim, -1)
        absorbed = torch.bmm(key.transpose(0, 1), columns).view(1, shape.heads * shape.hidden)
        kept, values = self.remember(index, absorbed, value)
        scores = kept.view(-1, shape.hidden) @ x.T
        return self.mix(scores.view(-1, shape.kv_heads, shape.group).permute(1, 2, 0), values)[None]

    @staticmethod
    def cost(shape: Shape, context: int) -> Cost:
        scores = 2 * context * shape.hidden * shape.heads * shape.layers
        mixing = 2 * context * shape.heads * shape.head_dim * shape.layers
        kept = (shape.heads * shape.hidden + shape.kv_dim) * shape.layers * context
        flop = 2 * shape.layer_weights + scores + mixing
        return Cost(flop, kept * DTYPE_BYTES[shape.dtype])


SCHEMES: tuple[type[Scheme], ...] = (NoCache, KeyValue, LayerInput, Absorbed)


@torch.inference_mode()
def decode(decoder: Decoder, tokens: list[int], kind: type[Scheme]) -> tuple[Tensor, Cost]:
    """Decode `tokens` one per step; returns logits [vocab] after the last, and the last step's
    cost.
    """
    scheme = kind(decoder.shape)
    # Without a cache earlier steps leave no trace: the last one alone will do.
    for token in tokens[:-1] if kind is not NoCache else ():
        _layers(decoder, [token], scheme)
    with FlopCounterMode(display=False) as counter:
        hidden = _layers(decoder, tokens if kind is NoCache else tokens[-1:], scheme)
    return decoder.logits(hidden[-1]), Cost(counter.get_total_flops(), scheme.kept_bytes)


def _layers(decoder: Decoder, tokens: list[int], scheme: Scheme) -> Tensor:
    norm_shape = (decoder.shape.hidden,)
    x = decoder.weights.embedding[torch.tensor(tokens)]
    for index, layer in enumerate(decoder.weights.layers):
        normed = rms_norm(x, norm_shape, layer.attention_norm, EPSILON)
        x = x + scheme.attend(index, layer, normed) @ plain(layer.output).T
        normed = rms_norm(x, norm_shape, layer.mlp_norm, EPSILON)
        gate, up = (normed @ plain(layer.gate_up).T).chunk(2, dim=-1)
        x = x + (silu(gate) * up) @ plain(layer.down).T
    return x
