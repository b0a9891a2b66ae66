"""Launch kvsim's Triton attention kernels."""

import torch
from torch import Tensor

from kvsim.backend.shape import Shape
from kvsim.backend.stores.store import Address
from kvsim.backend.transformer import fused, kernel
from kvsim.backend.transformer.rope import frequencies
from kvsim.backend.transformer.tiles import PREFILL_ROWS, KernelPlan, key_tile, power_of_two

LOG2_E = 1.4426950408889634


def warps(rows: int) -> int:
    """Warps of a program: a large tile's sums do not fit the registers of four."""
    return 8 if rows >= PREFILL_ROWS else 4


def launch(
    shape: Shape, plan: KernelPlan, address: Address, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """Apply RoPE to query and key, write the new tokens' key and value, then attend; the result is
    dense and shaped as query.

    query: [tokens, heads, head_dim]; key, value: [tokens, kv_heads, head_dim]; heads dense, any
    stride between tokens. Addresses lie on multiples of 16 elements.
    """
    kv_heads, group, dim = shape.kv_heads, shape.group, shape.head_dim
    dim_padded = power_of_two(dim)
    rotated = place(shape, plan, address, query, key, value)
    result = torch.empty_like(rotated)
    table, width, key_offset, value_offset = _places(plan, address)
    for tiles in plan.tiles:
        kernel.attend[(len(tiles.span), kv_heads, tiles.splits)](
            rotated,
            address.key,
            address.value,
            result,
            tiles.part,
            tiles.part_max,
            tiles.part_sum,
            table,
            key_offset,
            value_offset,
            plan.span_begin,
            plan.span_new,
            plan.span_start,
            tiles.span,
            tiles.token,
            dim**-0.5 * LOG2_E,
            rotated.stride(0),
            width,
            PAGE=address.page,
            KV_HEADS=kv_heads,
            GROUP=group,
            DIM=dim,
            DIM_PADDED=dim_padded,
            ROWS=tiles.rows,
            KEYS=key_tile(shape),
            SPLITS=tiles.splits,
            WINDOW=shape.window or 0,
            PRECISION="ieee",
            num_warps=warps(tiles.rows),
            num_stages=3,
        )
        if tiles.splits > 1:
            rows_used = tiles.rows // group * group
            kernel.combine[(len(tiles.span), kv_heads, rows_used)](
                result,
                tiles.part,
                tiles.part_max,
                tiles.part_sum,
                plan.span_begin,
                plan.span_new,
                tiles.span,
                tiles.token,
                KV_HEADS=kv_heads,
                GROUP=group,
                DIM=dim,
                DIM_PADDED=dim_padded,
                ROWS=tiles.rows,
                SPLITS=tiles.splits,
                SPLITS_PADDED=power_of_two(tiles.splits),
            )
    return result


def place(
    shape: Shape, plan: KernelPlan, address: Address, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """Apply RoPE to query and key, and write the new tokens' key and value, in one launch; returns
    the query, dense.
    """
    dim, kv_heads = shape.head_dim, shape.kv_heads
    table, width, key_offset, value_offset = _places(plan, address)
    rotated = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    fused.rotate_write[(len(query),)](
        query,
        key,
        value,
        rotated,
        address.key,
        address.value,
        table,
        key_offset,
        value_offset,
        plan.token_span,
        plan.positions,
        frequencies(dim, torch.float32, str(query.device)),
        query.stride(0),
        key.stride(0),
        value.stride(0),
        width,
        PAGE=address.page,
        HEADS=shape.heads,
        HEADS_PADDED=power_of_two(shape.heads),
        KV_HEADS=kv_heads,
        KV_HEADS_PADDED=power_of_two(kv_heads),
        DIM=dim,
        HALF_PADDED=power_of_two(dim // 2),
        ROW=shape.kv_dim,
        ROW_PADDED=power_of_two(shape.kv_dim),
    )
    return rotated


def _places(plan: KernelPlan, address: Address) -> tuple[Tensor, int, Tensor, Tensor]:
    """(table, its width, key offsets, value offsets). A store has a table or offsets; a placeholder
    that is never read replaces the other.
    """
    table = plan.token_span if address.table is None else address.table
    width = 0 if address.table is None else address.table.shape[1]
    key_offset = plan.positions if address.key_offset is None else address.key_offset
    value_offset = plan.positions if address.value_offset is None else address.value_offset
    return table, width, key_offset, value_offset
