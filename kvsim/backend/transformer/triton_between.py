"""The launches of the fused kernels between matrix products."""

import torch
from torch import Tensor

from kvsim.backend.transformer import fused
from kvsim.backend.transformer.products import FP8, FP8_MOST, LEAST
from kvsim.backend.transformer.tiles import power_of_two

GATE_BLOCK = 1024
WIDE = 4096  # elements of a row, from which on a program takes eight warps


def add_norm(
    stream: Tensor, delta: Tensor | None, weight: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """See `kvsim.backend.transformer.between.Between`; one launch."""
    tokens, hidden = stream.shape
    normed = torch.empty_like(stream)
    total = stream if delta is None else torch.empty_like(stream)
    fused.add_norm[(tokens,)](
        stream,
        stream if delta is None else delta,
        weight,
        total,
        normed,
        epsilon,
        HIDDEN=hidden,
        HIDDEN_PADDED=power_of_two(hidden),
        ADD=delta is not None,
        num_warps=warps(hidden),
    )
    return total, normed


def gate(gate_up: Tensor) -> Tensor:
    """See `kvsim.backend.transformer.between.Between`; one launch."""
    tokens, inner = gate_up.shape[0], gate_up.shape[1] // 2
    result = gate_up.new_empty((tokens, inner))
    fused.gate[(tokens, -(-inner // GATE_BLOCK))](gate_up, result, INNER=inner, BLOCK=GATE_BLOCK)
    return result


def narrow(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows in E4M3 and their scales, see `kvsim.backend.transformer.products`; one launch."""
    tokens, width = rows.shape
    found = torch.empty(rows.shape, dtype=FP8, device=rows.device)
    scale = torch.empty((tokens, 1), dtype=torch.float32, device=rows.device)
    fused.narrow[(tokens,)](
        rows,
        found,
        scale,
        rows.stride(0),
        LEAST,
        FP8_MOST,
        WIDTH=width,
        WIDTH_PADDED=power_of_two(width),
        num_warps=warps(width),
    )
    return found, scale


def warps(row: int) -> int:
    """Warps of a program that takes a row of this number of elements."""
    return 8 if row >= WIDE else 4
