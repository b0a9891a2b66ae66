"""Matrix products with weights: in the model's dtype, or in FP8 where the device multiplies it.

FP8 is E4M3, with a scale for each row of the weights and for each token. The scale of a token is
found when it comes, as engines do under dynamic FP8. Embeddings and the output head stay in the
model's dtype.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from kvsim.backend.shape import Shape
from kvsim.plumbing.errors import InputError

FP8 = torch.float8_e4m3fn
FP8_MOST = 448.0  # the largest number of E4M3
LEAST = 1e-12  # of a row's largest number: rows of zeros have a scale too
MULTIPLE = 16  # of both sides of a matrix


class Fp8Rows(NamedTuple):
    """rows: E4M3 [n, width]; scale: float32 [n, 1]; a row is rows times scale."""

    rows: Tensor
    scale: Tensor


Weight = Tensor | Fp8Rows
"""[out, in]."""


class Quantise(Protocol):
    """Quantise rows to E4M3, each with a scale from its largest number."""

    def __call__(self, rows: Tensor) -> Fp8Rows:
        """Quantise rows [n, width]."""
        ...


def quantise(rows: Tensor) -> Fp8Rows:
    """See `Quantise`; launch by launch, in float32."""
    wide = rows.float()
    scale = wide.abs().amax(-1, keepdim=True).clamp_min(LEAST) / FP8_MOST
    return Fp8Rows((wide / scale).to(FP8), scale)


def plain(weight: Weight) -> Tensor:
    """A weight as a plain tensor; an FP8 one is dequantised to float32."""
    return weight if isinstance(weight, Tensor) else weight.rows.float() * weight.scale


def multiply(
    rows: Tensor, weight: Weight, bias: Tensor | None = None, narrow: Quantise = quantise
) -> Tensor:
    """Rows [tokens, in] times weight, and bias [out]; in the dtype of rows."""
    if isinstance(weight, Tensor):
        return linear(rows, weight, bias)
    ours = narrow(rows)
    found: Tensor = torch._scaled_mm(
        ours.rows,
        weight.rows.t(),
        scale_a=ours.scale,
        scale_b=weight.scale.t(),
        out_dtype=rows.dtype,
    )
    return found if bias is None else found + bias


def check_products(shape: Shape, device: str, where: str = "--model") -> None:
    """InputError where the device does not multiply the weights of `shape`."""
    if shape.weights is None:
        return
    sides = {
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_attention_heads * head_dim": shape.heads * shape.head_dim,
        "num_key_value_heads * head_dim": shape.kv_dim,
    }
    for name, side in sides.items():
        if side % MULTIPLE:
            raise InputError(f"fp8 weights need multiples of {MULTIPLE}", where=f"{where}: {name}",
                             value=side)  # fmt: skip
    try:
        ones = torch.ones(MULTIPLE, MULTIPLE, dtype=getattr(torch, shape.dtype), device=device)
        multiply(ones, quantise(ones))
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            "fp8 weights are not multiplied here",
            where=where,
            value=f"{shape.dtype} on {device}: {said}",
            limit="a GPU of compute capability 8.9, in bfloat16",
            remedy="name the model without its quantisation",
        ) from None
