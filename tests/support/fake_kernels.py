"""Stand-ins for flash_attn 2.8 and flashinfer 0.6: their documented functions, every argument
checked as their documentation has it, the result computed by torch in float64.
"""

from importlib.machinery import ModuleSpec
from itertools import pairwise
from types import ModuleType

import torch

HALVES = (torch.float16, torch.bfloat16)


def attended(query, keys, values, *, causal, window_left):
    """query [new, heads, dim] against keys, values [context, kv_heads, dim]; the mask of both
    packages: the last query sees the last key.
    """
    new, context = len(query), len(keys)
    if not context:
        return torch.zeros_like(query)
    group = query.shape[1] // keys.shape[1]
    q, k, v = query.double(), *(x.double().repeat_interleave(group, 1) for x in (keys, values))
    own = torch.arange(context - new, context)[:, None]
    at = torch.arange(context)[None, :]
    hidden = (at > own) if causal else torch.zeros(new, context, dtype=torch.bool)
    if window_left >= 0:
        hidden |= at < own - window_left
    scores = torch.einsum("qhd,khd->hqk", q, k) * query.shape[-1] ** -0.5
    share = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", share, v).to(query.dtype)


def indices(tensor, shape):
    assert tensor.dtype == torch.int32
    assert tensor.shape == shape
    assert tensor.is_contiguous()
    return tensor.tolist()


def pool(cache, like, page):
    num_blocks, size, kv_heads, dim = cache.shape
    assert page in (None, size)
    assert cache.dtype == like.dtype
    assert cache.dtype in HALVES
    assert cache.stride(-1) == 1
    assert (like.shape[-2] % kv_heads, like.shape[-1]) == (0, dim)
    return num_blocks, size


def rows(cache, blocks, context):
    assert all(0 <= block < len(cache) for block in blocks)
    return cache[blocks].flatten(0, 1)[:context]


# --- flash_attn: flash_attn/flash_attn_interface.py -----------------------------------------------


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
    cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0,
    return_softmax_lse=False,
):  # fmt: skip
    assert k is v is rotary_cos is rotary_sin is None  # the cache has the new tokens already
    batch, new, _, dim = q.shape
    assert dim % 8 == 0
    assert dim <= 256
    for cache in (k_cache, v_cache):
        assert pool(cache, q, None)[1] % 256 == 0
    contexts = indices(cache_seqlens, (batch,))
    table = indices(block_table, (batch, block_table.shape[1]))
    assert window_size == (-1, -1) or window_size[1] == 0
    out = torch.empty_like(q)
    for row, (context, blocks) in enumerate(zip(contexts, table, strict=True)):
        used = blocks[: -(-context // k_cache.shape[1])]
        assert context in (0, *range(new, len(blocks) * k_cache.shape[1] + 1))
        own = (rows(cache, used, context) for cache in (k_cache, v_cache))
        out[row] = attended(q[row], *own, causal=causal, window_left=window_size[0])
    return out


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
    softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
    deterministic=False, return_attn_probs=False, block_table=None,
):  # fmt: skip
    assert q.dim() == 3
    for cache in (k, v):
        assert pool(cache, q, None)[1] % 256 == 0
    batch = len(cu_seqlens_q) - 1
    begins, ends = (indices(each, (batch + 1,)) for each in (cu_seqlens_q, cu_seqlens_k))
    assert (begins[0], ends[0], begins[-1]) == (0, 0, len(q))
    news, contexts = ([b - a for a, b in pairwise(each)] for each in (begins, ends))
    assert (max_seqlen_q, max_seqlen_k) == (max(news), max(contexts))
    assert type(max_seqlen_q) is type(max_seqlen_k) is int
    table = indices(block_table, (batch, block_table.shape[1]))
    out = torch.empty_like(q)
    for row, (first, end) in enumerate(pairwise(begins)):
        used = table[row][: -(-contexts[row] // k.shape[1])]
        own = (rows(cache, used, contexts[row]) for cache in (k, v))
        out[first:end] = attended(q[first:end], *own, causal=causal, window_left=window_size[0])
    return out


# --- flashinfer: flashinfer/decode.py, flashinfer/prefill.py --------------------------------------


class PagedWrapper:
    """What both wrappers do; plans: how often one was planned."""

    plans = 0

    def __init__(self, float_workspace_buffer, kv_layout="NHD"):
        assert kv_layout == "NHD"
        assert float_workspace_buffer.dtype == torch.uint8
        assert float_workspace_buffer.nbytes >= 128 << 20
        self.spans = None

    def keep(
        self, rows, indptr, indices_, last_page_len, heads, kv_heads, dim, page, causal,
        window_left, dtypes,
    ):  # fmt: skip
        PagedWrapper.plans += 1
        batch = len(indptr) - 1
        begins, last = indices(indptr, (batch + 1,)), indices(last_page_len, (batch,))
        found = indices(indices_, (begins[-1],))
        assert begins[0] == 0
        assert all(1 <= count <= page for count in last)
        assert dtypes[0] == dtypes[1]
        assert dtypes[0] in HALVES
        assert dim in (64, 128, 256)
        self.shape = heads, kv_heads, dim, page, dtypes[0]
        self.rule = {"causal": causal, "window_left": window_left}
        self.spans = [
            (rows[at], rows[at + 1], found[a:b], (b - a - 1) * page + last[at])
            for at, (a, b) in enumerate(pairwise(begins))
        ]

    def run(self, q, paged_kv_cache):
        heads, kv_heads, dim, page, dtype = self.shape
        assert q.shape == (self.spans[-1][1], heads, dim)
        assert q.dtype == dtype
        assert isinstance(paged_kv_cache, tuple)
        for cache in paged_kv_cache:
            pool(cache, q, page)
            assert cache.shape[2] == kv_heads
        out = torch.empty_like(q)
        for first, end, blocks, context in self.spans:
            own = (rows(cache, blocks, context) for cache in paged_kv_cache)
            out[first:end] = attended(q[first:end], *own, **self.rule)
        return out


class BatchDecodeWithPagedKVCacheWrapper(PagedWrapper):
    def __init__(
        self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, use_tensor_cores=False
    ):
        assert not use_cuda_graph
        assert isinstance(use_tensor_cores, bool)
        super().__init__(float_workspace_buffer, kv_layout)

    def plan(
        self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
        pos_encoding_mode="NONE", window_left=-1, logits_soft_cap=None, q_data_type="float16",
        kv_data_type=None, o_data_type=None, data_type=None, sm_scale=None, rope_scale=None,
        rope_theta=None, non_blocking=True,
    ):  # fmt: skip
        # One query a sequence, the newest: nothing to hide but what a window does.
        self.keep(range(len(indptr)), indptr, indices, last_page_len, num_qo_heads, num_kv_heads,
                  head_dim, page_size, False, window_left, (q_data_type, kv_data_type))  # fmt: skip


class BatchPrefillWithPagedKVCacheWrapper(PagedWrapper):
    def plan(
        self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads,
        num_kv_heads, head_dim_qk, page_size, head_dim_vo=None, custom_mask=None,
        packed_custom_mask=None, causal=False, pos_encoding_mode="NONE",
        use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None,
        rope_scale=None, rope_theta=None, q_data_type="float16", kv_data_type=None,
    ):  # fmt: skip
        queries = indices(qo_indptr, (len(paged_kv_indptr),))
        assert queries[0] == 0
        self.keep(queries, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads,
                  num_kv_heads, head_dim_qk, page_size, causal, window_left,
                  (q_data_type, kv_data_type))  # fmt: skip


def package(name, *parts):
    """A module of these functions and classes."""
    made = ModuleType(name)
    made.__spec__ = ModuleSpec(name, None)
    for part in parts:
        setattr(made, part.__name__, part)
    return made


PACKAGES = {
    "flash-attn": package("flash_attn", flash_attn_with_kvcache, flash_attn_varlen_func),
    "flashinfer": package(
        "flashinfer", BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithPagedKVCacheWrapper
    ),
}
