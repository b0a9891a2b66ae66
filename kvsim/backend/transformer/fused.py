"""The fused GPU kernels between matrix products: residual and RMSNorm, RoPE and cache write,
SwiGLU.

Each does in one pass over its rows what torch does in three to eight launches. They compute in
float32 and round once, at the end; the sum of the residual stream is rounded before its norm.
"""

# ruff: noqa: N803, N806 - compile-time constants stand in capitals, as in Triton's own kernels
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
import triton
import triton.language as tl

from kvsim.backend.transformer.kernel import _row_of


@triton.jit
def add_norm(
    stream,  # [tokens, HIDDEN], dense: the residual stream
    delta,  # [tokens, HIDDEN], dense: what is added to it; not read without ADD
    weight,  # [HIDDEN]
    total,  # [tokens, HIDDEN]: the sum; not written without ADD
    normed,  # [tokens, HIDDEN]
    epsilon,
    HIDDEN: tl.constexpr,
    HIDDEN_PADDED: tl.constexpr,
    ADD: tl.constexpr,
):
    """One program per token: add delta to the residual stream, and write its RMSNorm."""
    row = tl.program_id(0).to(tl.int64) * HIDDEN
    element = tl.arange(0, HIDDEN_PADDED)
    inside = element < HIDDEN
    x = tl.load(stream + row + element, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        x += tl.load(delta + row + element, mask=inside, other=0.0).to(tl.float32)
        rounded = x.to(total.dtype.element_ty)
        tl.store(total + row + element, rounded, mask=inside)
        x = rounded.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 0) / HIDDEN + epsilon)
    w = tl.load(weight + element, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row + element, (x * scale * w).to(normed.dtype.element_ty), mask=inside)


@triton.jit
def gate(
    gate_up,  # [tokens, 2 * INNER], dense: gates, then what they let through
    result,  # [tokens, INNER]
    INNER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid (tokens, INNER // BLOCK, rounded up): silu(gate) * up."""
    token = tl.program_id(0).to(tl.int64)
    element = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = element < INNER
    row = gate_up + token * 2 * INNER
    g = tl.load(row + element, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(row + INNER + element, mask=inside, other=0.0).to(tl.float32)
    out = g / (1.0 + tl.exp(-g)) * up
    tl.store(result + token * INNER + element, out.to(result.dtype.element_ty), mask=inside)


@triton.jit
def narrow(
    rows,  # [tokens, WIDTH], row_stride apart
    narrowed,  # E4M3 [tokens, WIDTH]
    scales,  # float32 [tokens]
    row_stride,
    least,  # of a row's largest number
    most,  # the largest number of E4M3
    WIDTH: tl.constexpr,
    WIDTH_PADDED: tl.constexpr,
):
    """One program per token: quantise its row, divided by a scale that makes its largest number
    `most`.
    """
    token = tl.program_id(0).to(tl.int64)
    element = tl.arange(0, WIDTH_PADDED)
    inside = element < WIDTH
    x = tl.load(rows + token * row_stride + element, mask=inside, other=0.0).to(tl.float32)
    unit = tl.maximum(tl.max(tl.abs(x), 0), least) / most
    tl.store(scales + token, unit)
    found = (x / unit).to(narrowed.dtype.element_ty)
    tl.store(narrowed + token * WIDTH + element, found, mask=inside)


@triton.jit
def _turn(source, target, head, ok, cos, sin, pair, DIM: tl.constexpr):
    """Copy rows [heads, DIM] from source to target with RoPE: rotate pair (i, i + DIM / 2)."""
    HALF: tl.constexpr = DIM // 2
    at = head[:, None] * DIM + pair[None, :]
    low = tl.load(source + at, mask=ok, other=0.0).to(tl.float32)
    high = tl.load(source + at + HALF, mask=ok, other=0.0).to(tl.float32)
    element = target.dtype.element_ty
    tl.store(target + at, (low * cos - high * sin).to(element), mask=ok)
    tl.store(target + at + HALF, (high * cos + low * sin).to(element), mask=ok)


@triton.jit
def rotate_write(
    query,  # [tokens, HEADS, DIM], rows query_stride apart
    key,  # [tokens, KV_HEADS, DIM], rows key_stride apart
    value,
    rotated,  # [tokens, HEADS, DIM], dense
    key_base,
    value_base,
    table,
    key_offset,
    value_offset,
    token_span,  # int32 [tokens]
    position,  # int64 [tokens]
    frequency,  # float32 [DIM / 2]: the angle of each pair at position 1
    query_stride,
    key_stride,
    value_stride,
    table_width,
    PAGE: tl.constexpr,
    HEADS: tl.constexpr,
    HEADS_PADDED: tl.constexpr,
    KV_HEADS: tl.constexpr,
    KV_HEADS_PADDED: tl.constexpr,
    DIM: tl.constexpr,
    HALF_PADDED: tl.constexpr,
    ROW: tl.constexpr,
    ROW_PADDED: tl.constexpr,
):
    """One program per token: apply RoPE to its queries and K, and write K and V to the cache of its
    span.
    """
    token = tl.program_id(0).to(tl.int64)
    span = tl.load(token_span + token)
    at = tl.load(position + token).to(tl.int32)
    key_at = _row_of(table, key_offset, span, at, True, table_width, PAGE, ROW)
    value_at = _row_of(table, value_offset, span, at, True, table_width, PAGE, ROW)

    pair = tl.arange(0, HALF_PADDED)
    pair_ok = pair < DIM // 2
    angle = at.to(tl.float32) * tl.load(frequency + pair, mask=pair_ok, other=0.0)
    cos, sin = tl.cos(angle)[None, :], tl.sin(angle)[None, :]
    head = tl.arange(0, HEADS_PADDED)
    ok = (head < HEADS)[:, None] & pair_ok[None, :]
    own = rotated + token * HEADS * DIM
    _turn(query + token * query_stride, own, head, ok, cos, sin, pair, DIM)
    head = tl.arange(0, KV_HEADS_PADDED)
    ok = (head < KV_HEADS)[:, None] & pair_ok[None, :]
    _turn(key + token * key_stride, key_base + key_at, head, ok, cos, sin, pair, DIM)

    element = tl.arange(0, ROW_PADDED)
    inside = element < ROW
    new_value = tl.load(value + token * value_stride + element, mask=inside)
    tl.store(value_base + value_at + element, new_value, mask=inside)
