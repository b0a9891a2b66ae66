"""The attention kernels in plain torch, tile by tile, from the same index tensors and addresses.

It is slow, and right on any device. It replaces the kernels where there is no GPU, so that plans,
tables, offsets and captured steps are tested without one.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from kvsim.backend.shape import Shape
from kvsim.backend.stores.store import Address
from kvsim.backend.transformer.rope import rotate, turns
from kvsim.backend.transformer.tiles import KernelPlan


def launch(
    shape: Shape, plan: KernelPlan, address: Address, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """See `kvsim.backend.transformer.tiles.Launch`; not for a base that is not one pool."""
    query = place(shape, plan, address, query, key, value)
    keys, values = _sides(shape, address)
    result = torch.zeros(query.shape, dtype=query.dtype, device=query.device)
    begin, new, start = (
        side.tolist() for side in (plan.span_begin, plan.span_new, plan.span_start)
    )
    heads = (shape.kv_heads, shape.group, shape.head_dim)
    for tiles in plan.tiles:
        tokens = tiles.rows // shape.group
        for span, first in zip(tiles.span.tolist(), tiles.token.tolist(), strict=True):
            last = min(first + tokens, new[span])
            if first >= last:
                continue
            rows = slice(begin[span] + first, begin[span] + last)
            at = torch.arange(start[span] + last)
            own_keys, own_values = (
                side.base[side.rows(span, at)].view(-1, shape.kv_heads, shape.head_dim)
                for side in (keys, values)
            )
            own_query = query[rows].reshape(last - first, *heads)
            scores = torch.einsum("tkgd,ckd->kgtc", own_query, own_keys) * shape.head_dim**-0.5
            own = (start[span] + torch.arange(first, last))[:, None]
            hidden = at[None, :] > own
            if shape.window is not None:
                hidden |= at[None, :] + shape.window <= own
            share = scores.masked_fill(hidden, -torch.inf).softmax(-1)
            mixed = torch.einsum("kgtc,ckd->tkgd", share, own_values)
            result[rows] = mixed.reshape(last - first, shape.heads, shape.head_dim)
    return result


def place(
    shape: Shape, plan: KernelPlan, address: Address, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """Apply RoPE to query and key, write the new tokens' key and value, and return the query."""
    turn = turns(plan.positions, shape.head_dim, query.dtype)
    keys, values = _sides(shape, address)
    for side, new_rows in ((keys, rotate(key, turn)), (values, value)):
        side.base[side.rows(plan.token_span, plan.positions)] = new_rows.flatten(1)
    return rotate(query, turn)


def _sides(shape: Shape, address: Address) -> tuple["_Side", "_Side"]:
    key, value = (
        _Side(base.reshape(-1, shape.kv_dim), address.table, offset, address.page)
        for base, offset in (
            (address.key, address.key_offset),
            (address.value, address.value_offset),
        )
    )
    return key, value


class _Side(NamedTuple):
    """K or V of a layer: a pool [slots, kv_dim], with the table or offsets that map positions to
    rows.
    """

    base: Tensor
    table: Tensor | None
    offset: Tensor | None
    page: int

    def rows(self, span: int | Tensor, position: Tensor) -> Tensor:
        """Pool rows of `position`, int64: positions of one span, or one position for each of
        several spans.
        """
        if self.table is not None:
            return self.table[span, position // self.page].long() * self.page + position % self.page
        assert self.offset is not None
        return self.offset[span] // self.base.shape[1] + position
