"""Random weights by seed: real work and real numbers, without a download."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvsim.backend.shape import Shape
from kvsim.backend.transformer.products import Weight, quantise


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. Matrices are [out, in]; qkv and gate_up are stacked, as in inference engines.

    qkv: [(heads + 2 * kv_heads) * head_dim, hidden]; output: [hidden, heads * head_dim];
    gate_up: [2 * intermediate, hidden]; down: [hidden, intermediate]; norms: [hidden]. qkv_bias:
    one number a row of qkv (Qwen 2); query_norm, key_norm: [head_dim] (Qwen 3); None without. The
    matrices may be in FP8.
    """

    attention_norm: Tensor
    qkv: Weight
    output: Weight
    mlp_norm: Tensor
    gate_up: Weight
    down: Weight
    qkv_bias: Tensor | None = None
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All weights of a decoder. embedding, unembedding: [vocab, hidden]; norm: [hidden]."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    unembedding: Tensor


def random_weights(shape: Shape, seed: int = 0, device: str = "cpu") -> DecoderWeights:
    """Normal weights of variance 1 / fan-in, so that activations keep their size through the depth.

    The same seed gives the same bits on the same kind of device. Never zeros: a chip draws less
    power, and runs faster, on zeros than on numbers.
    """
    dtype = getattr(torch, shape.dtype)
    generator = torch.Generator(device).manual_seed(seed)

    qkv_rows = (shape.heads + 2 * shape.kv_heads) * shape.head_dim

    def matrix(rows: int, columns: int) -> Tensor:
        drawn = torch.empty(rows, columns, dtype=dtype, device=device)
        return drawn.normal_(0.0, columns**-0.5, generator=generator)

    def stored(rows: int, columns: int) -> Weight:
        drawn = matrix(rows, columns)
        return quantise(drawn) if shape.weights else drawn

    def norm(width: int = shape.hidden, mean: float = 1.0) -> Tensor:
        drawn = torch.empty(width, dtype=dtype, device=device)
        return drawn.normal_(mean, 0.1, generator=generator)

    def layer() -> LayerWeights:
        return LayerWeights(
            attention_norm=norm(),
            qkv=stored(qkv_rows, shape.hidden),
            output=stored(shape.hidden, shape.heads * shape.head_dim),
            mlp_norm=norm(),
            gate_up=stored(2 * shape.intermediate, shape.hidden),
            down=stored(shape.hidden, shape.intermediate),
            qkv_bias=norm(qkv_rows, 0.0) if shape.qkv_bias else None,
            query_norm=norm(shape.head_dim) if shape.qk_norm else None,
            key_norm=norm(shape.head_dim) if shape.qk_norm else None,
        )

    return DecoderWeights(
        embedding=matrix(shape.vocab, shape.hidden) * shape.hidden**0.5,
        layers=tuple(layer() for _ in range(shape.layers)),
        norm=norm(),
        unembedding=matrix(shape.vocab, shape.hidden),
    )
