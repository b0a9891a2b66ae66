"""The decoder: RMSNorm, RoPE, grouped-query attention, SwiGLU, over a packed ragged batch."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, rms_norm, silu

from kvsim.backend.shape import Shape
from kvsim.backend.transformer.rope import rotate, turns
from kvsim.backend.transformer.weights import DecoderWeights, random_weights

EPSILON = 1e-5


class Attend(Protocol):
    """Attention of one layer in one step, over whatever keeps K and V."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query: [tokens, heads, head_dim]; key, value: [tokens, kv_heads, head_dim], of the new
        tokens, rotated. Writes key and value to the cache; the result is shaped as query.
        """
        ...


class Decoder:
    """A Llama-shaped decoder with weights on one device."""

    def __init__(
        self, shape: Shape, weights: DecoderWeights | None = None, device: str = "cpu"
    ) -> None:
        self.shape = shape
        self.device = device
        self.dtype: torch.dtype = getattr(torch, shape.dtype)
        self.weights = random_weights(shape, device=device) if weights is None else weights

    def hidden(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """The residual stream [tokens, hidden] after the last layer. int64 [tokens] each."""
        shape, weights = self.shape, self.weights
        key_end = shape.heads + shape.kv_heads  # of the heads: queries, keys, then values
        norm_shape = (shape.hidden,)
        turn = turns(positions, shape.head_dim, self.dtype)
        x = embedding(token_ids, weights.embedding)
        for index, layer in enumerate(weights.layers):
            normed = rms_norm(x, norm_shape, layer.attention_norm, EPSILON)
            qkv = linear(normed, layer.qkv).view(len(x), -1, shape.head_dim)
            turned = rotate(qkv[:, :key_end], turn)
            query, key, value = turned[:, : shape.heads], turned[:, shape.heads :], qkv[:, key_end:]
            x = x + linear(attend(index, query, key, value).flatten(1), layer.output)
            normed = rms_norm(x, norm_shape, layer.mlp_norm, EPSILON)
            gate, up = linear(normed, layer.gate_up).chunk(2, dim=-1)
            x = x + linear(silu(gate) * up, layer.down)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [rows, vocab] of rows of the residual stream."""
        weights = self.weights
        normed = rms_norm(hidden, (self.shape.hidden,), weights.norm, EPSILON)
        return linear(normed, weights.unembedding)
