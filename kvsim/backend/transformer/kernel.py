"""The GPU kernels of attention, ragged, over paged or contiguous K and V.

One kernel serves decode, prefill, chunks and mixed steps, and all stores. A paged one goes through
its block table, a contiguous one through one offset a sequence. Their times then differ by the
indirection alone. A program takes the query rows of one tile against one split of its keys. A tile
is some tokens of one span, with the query heads that share one KV head. `combine` joins the splits
(split-KV decoding, as in Flash-Decoding; the running softmax as in FlashAttention).

Addresses are those of `kvsim.backend.stores.store.Address`.
"""

# ruff: noqa: N803, N806 - compile-time constants stand in capitals, as in Triton's own kernels
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
import triton
import triton.language as tl


@triton.jit
def _row_of(table, offset, span, position, ok, table_width, PAGE: tl.constexpr, ROW: tl.constexpr):
    """Element at which the rows of `position` (int32 tensor) of a span begin, int64."""
    if PAGE:
        page = tl.load(table + span * table_width + position // PAGE, mask=ok, other=0)
        return (page.to(tl.int64) * PAGE + position % PAGE) * ROW
    # Buffers begin at multiples of at least 16 elements; the compiler cannot know.
    return tl.multiple_of(tl.load(offset + span), 16) + position.to(tl.int64) * ROW


@triton.jit
def attend(
    query,  # [tokens, heads, head_dim], rows query_stride apart
    key_base,
    value_base,
    result,  # [tokens, heads, head_dim], dense; written where SPLITS is 1
    part,  # float32 [tiles, kv_heads, SPLITS, ROWS, DIM]; written where SPLITS > 1
    part_max,  # float32 [tiles, kv_heads, SPLITS, ROWS], base 2
    part_sum,
    table,
    key_offset,
    value_offset,
    span_begin,  # int32 [spans]: first row of the span in query
    span_new,  # int32 [spans]: its new tokens
    span_start,  # int32 [spans]: tokens in its cache before them
    tile_span,  # int32 [tiles]
    tile_token,  # int32 [tiles]: the tile's first token within its span
    scale,  # 1 / sqrt(head_dim), times log2(e): exponents are taken to base 2
    query_stride,
    table_width,
    PAGE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    SPLITS: tl.constexpr,
    WINDOW: tl.constexpr,  # newest keys that a query sees, its own included; 0: all
    PRECISION: tl.constexpr,
):
    """Attention kernel on the grid (tiles, kv_heads, SPLITS). A tile holds ROWS // GROUP tokens,
    GROUP rows each.
    """
    tile, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    TOKENS: tl.constexpr = ROWS // GROUP
    ROW: tl.constexpr = KV_HEADS * DIM
    HEADS: tl.constexpr = KV_HEADS * GROUP

    span = tl.load(tile_span + tile)
    first = tl.load(tile_token + tile)
    begin = tl.load(span_begin + span)
    new = tl.load(span_new + span)
    start = tl.load(span_start + span)

    row = tl.arange(0, ROWS)
    dim = tl.arange(0, DIM_PADDED)
    token = first + row // GROUP
    head = kv_head * GROUP + row % GROUP
    row_ok = (token < new) & (row < TOKENS * GROUP)
    dim_ok = dim < DIM
    token_row = (begin + token).to(tl.int64)
    q = tl.load(
        query + (token_row * query_stride + head * DIM)[:, None] + dim[None, :],
        mask=row_ok[:, None] & dim_ok[None, :],
        other=0.0,
    )

    # The keys this tile sees end at its last token; a split takes an equal share of their blocks.
    # With a window they begin at the first that its first token sees.
    seen = start + tl.minimum(first + TOKENS, new)
    oldest = 0
    if WINDOW:
        oldest = tl.maximum(start + first + 1 - WINDOW, 0)
    share = tl.cdiv(tl.cdiv(seen - oldest, KEYS), SPLITS) * KEYS
    low = oldest + split * share
    high = tl.minimum(low + share, seen)

    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mean = tl.zeros([ROWS, DIM_PADDED], tl.float32)
    for at in range(low, high, KEYS):
        position = at + tl.arange(0, KEYS)
        ok = position < high
        key_at = _row_of(table, key_offset, span, position, ok, table_width, PAGE, ROW)
        k = tl.load(
            key_base + (key_at + kv_head * DIM)[None, :] + dim[:, None],
            mask=ok[None, :] & dim_ok[:, None],
            other=0.0,
        )
        score = tl.dot(q, k, input_precision=PRECISION) * scale
        visible = ok[None, :] & (position[None, :] <= (start + token)[:, None])
        if WINDOW:
            visible &= position[None, :] + WINDOW > (start + token)[:, None]
        score = tl.where(visible, score, float("-inf"))
        higher = tl.maximum(best, tl.max(score, 1))
        # A row that has seen nothing yet keeps -inf; subtracting it would make NaN.
        anchor = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp2(score - anchor[:, None])
        fade = tl.exp2(best - anchor)
        total = total * fade + tl.sum(weight, 1)
        value_at = _row_of(table, value_offset, span, position, ok, table_width, PAGE, ROW)
        v = tl.load(
            value_base + (value_at + kv_head * DIM)[:, None] + dim[None, :],
            mask=ok[:, None] & dim_ok[None, :],
            other=0.0,
        )
        mean = mean * fade[:, None]
        mean += tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
        best = higher

    if SPLITS == 1:
        # Rows outside the span have total 0; they are not stored.
        out = mean / total[:, None]
        tl.store(
            result + ((token_row * HEADS + head) * DIM)[:, None] + dim[None, :],
            out.to(result.dtype.element_ty),
            mask=row_ok[:, None] & dim_ok[None, :],
        )
    else:
        place = ((tile * KV_HEADS + kv_head) * SPLITS + split).to(tl.int64) * ROWS + row
        tl.store(part_max + place, best, mask=row_ok)
        tl.store(part_sum + place, total, mask=row_ok)
        tl.store(
            part + (place * DIM)[:, None] + dim[None, :],
            mean,
            mask=row_ok[:, None] & dim_ok[None, :],
        )


@triton.jit
def combine(
    result,  # [tokens, heads, head_dim]
    part,
    part_max,
    part_sum,
    span_begin,
    span_new,
    tile_span,
    tile_token,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
    SPLITS_PADDED: tl.constexpr,
):
    """Combine the SPLITS parts of one output row; on the grid (tiles, kv_heads, TOKENS * GROUP)."""
    tile, kv_head, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    span = tl.load(tile_span + tile)
    token = tl.load(tile_token + tile) + row // GROUP
    if token < tl.load(span_new + span):
        split = tl.arange(0, SPLITS_PADDED)
        dim = tl.arange(0, DIM_PADDED)
        split_ok = split < SPLITS
        dim_ok = dim < DIM
        place = ((tile * KV_HEADS + kv_head) * SPLITS + split).to(tl.int64) * ROWS + row
        best = tl.load(part_max + place, mask=split_ok, other=float("-inf"))
        weight = tl.exp2(best - tl.max(best, 0))
        total = tl.sum(tl.load(part_sum + place, mask=split_ok, other=0.0) * weight, 0)
        mean = tl.load(
            part + (place * DIM)[:, None] + dim[None, :],
            mask=split_ok[:, None] & dim_ok[None, :],
            other=0.0,
        )
        out = tl.sum(mean * weight[:, None], 0) / total
        head = kv_head * GROUP + row % GROUP
        token_row = (tl.load(span_begin + span) + token).to(tl.int64)
        tl.store(
            result + (token_row * KV_HEADS * GROUP + head) * DIM + dim,
            out.to(result.dtype.element_ty),
            mask=dim_ok,
        )
