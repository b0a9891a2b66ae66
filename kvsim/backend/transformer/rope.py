"""Rotary position embedding: pair (i, i + D / 2) turns by position * BASE ** (-2i / D).

D is head_dim; the half-split order of Llama checkpoints.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

BASE = 10000.0  # random weights make no use of a longer base: the work is the same


class Turn(NamedTuple):
    """Cosines and sines of a set of positions, [positions, 1, head_dim / 2] each."""

    cos: Tensor
    sin: Tensor


@lru_cache(maxsize=16)
def frequencies(head_dim: int, dtype: torch.dtype, device: str) -> Tensor:
    """Angles [head_dim / 2] of the pairs at position 1."""
    pair = torch.arange(head_dim // 2, dtype=dtype, device=device)
    return BASE ** (-2.0 * pair / head_dim)


def turns(positions: Tensor, head_dim: int, dtype: torch.dtype) -> Turn:
    """The turns of `positions` (int64, any device); angles in float64 only where dtype asks."""
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    angle = positions.to(exact)[:, None] * frequencies(head_dim, exact, str(positions.device))
    return Turn(angle.cos().to(dtype)[:, None, :], angle.sin().to(dtype)[:, None, :])


def rotate(x: Tensor, turn: Turn) -> Tensor:
    """x: [positions, heads, head_dim], each row turned by its position; a new tensor."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * turn.cos - high * turn.sin, high * turn.cos + low * turn.sin), dim=-1)
