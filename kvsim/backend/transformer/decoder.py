"""The decoder: RMSNorm, grouped-query attention, SwiGLU, over a packed ragged batch."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, rms_norm

from kvsim.backend.shape import Shape
from kvsim.backend.transformer.between import EPSILON, Between, PlainBetween
from kvsim.backend.transformer.products import multiply
from kvsim.backend.transformer.weights import DecoderWeights, random_weights


class Attend(Protocol):
    """Attention of one layer in one step, over any store of K and V."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query: [tokens, heads, head_dim]; key, value: [tokens, kv_heads, head_dim], of the new
        tokens. Turns query and key by their positions (RoPE), and writes key and value to the
        cache; the result is shaped as query.
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

    def hidden(self, token_ids: Tensor, attend: Attend, between: Between | None = None) -> Tensor:
        """The residual stream [tokens, hidden] after the last layer; token_ids: int64 [tokens].
        between: the work between products; by default in torch.
        """
        shape, weights = self.shape, self.weights
        work = between or PlainBetween()
        key_end = shape.heads + shape.kv_heads  # of the heads: queries, keys, then values
        stream, delta = embedding(token_ids, weights.embedding), None
        for index, layer in enumerate(weights.layers):
            stream, normed = work.add_norm(stream, delta, layer.attention_norm)
            qkv = multiply(normed, layer.qkv, layer.qkv_bias, work.narrow).view(
                len(stream), -1, shape.head_dim
            )
            query, key = qkv[:, : shape.heads], qkv[:, shape.heads : key_end]
            if layer.query_norm is not None and layer.key_norm is not None:
                query = rms_norm(query, (shape.head_dim,), layer.query_norm, EPSILON)
                key = rms_norm(key, (shape.head_dim,), layer.key_norm, EPSILON)
            mixed = attend(index, query, key, qkv[:, key_end:])
            delta = multiply(mixed.flatten(1), layer.output, narrow=work.narrow)
            stream, normed = work.add_norm(stream, delta, layer.mlp_norm)
            gated = work.gate(multiply(normed, layer.gate_up, narrow=work.narrow))
            delta = multiply(gated, layer.down, narrow=work.narrow)
        return stream if delta is None else stream + delta

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [rows, vocab] of rows of the residual stream."""
        weights = self.weights
        normed = rms_norm(hidden, (self.shape.hidden,), weights.norm, EPSILON)
        return linear(normed, weights.unembedding)
