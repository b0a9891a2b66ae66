"""Attention by kernels of other packages over blocks of one pool: flash_attn, and flashinfer.

Queries and keys are turned, and the cache written, as for kvsim's own kernel; then one call attends
to all spans. Both packages take the pool as [num_blocks, block_size, kv_heads, head_dim].
"""

from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kvsim.backend.shape import Shape
from kvsim.backend.stores.store import Address
from kvsim.backend.transformer.tiles import KernelPlan, Launch, RaggedSpans

WORKSPACE_BYTES = 128 << 20  # what flashinfer's documentation asks for
TENSOR_CORE_GROUP = 4  # query heads of a KV head from which its decode runs on matrix units


def flash_attn() -> Launch:
    """flash_attn's kernels (2.5 or later): the split-KV one where every span decodes, else the
    ragged one.
    """
    package = import_module("flash_attn")

    def launch(
        shape: Shape, plan: KernelPlan, address: Address, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        query = _placed(shape, plan, address, query, key, value)
        keys, values = _pages(shape, address)
        # Keys before and after the query's own position; -1: all.
        window = (-1, -1) if shape.window is None else (shape.window - 1, 0)
        table, ragged = address.table, plan.ragged
        assert table is not None
        if ragged is None or max(ragged.new) == 1:
            rows = len(query)  # in a captured step the last span has no row: it is padding
            out: Tensor = package.flash_attn_with_kvcache(
                query[:, None],
                keys,
                values,
                cache_seqlens=plan.span_context[:rows],
                block_table=table[:rows],
                causal=True,
                window_size=window,
            )
            return out[:, 0]
        found: Tensor = package.flash_attn_varlen_func(
            query,
            keys,
            values,
            cu_seqlens_q=ragged.begins,
            cu_seqlens_k=ragged.context_begins,
            max_seqlen_q=max(ragged.new),
            max_seqlen_k=max(ragged.context),
            causal=True,
            window_size=window,
            block_table=table,
        )
        return found

    return launch


class FlashInfer:
    """flashinfer's wrappers, planned once a step: of decode where every span decodes, else of
    prefill.
    """

    def __init__(self) -> None:
        self._package = import_module("flashinfer")
        self._wrappers: dict[bool, Any] = {}
        self._planned: KernelPlan | None = None
        self._wrapper: Any = None

    def __call__(
        self,
        shape: Shape,
        plan: KernelPlan,
        address: Address,
        query: Tensor,
        key: Tensor,
        value: Tensor,
    ) -> Tensor:
        """See `kvsim.backend.transformer.tiles.Launch`."""
        query = _placed(shape, plan, address, query, key, value)
        if self._planned is not plan:
            self._plan(shape, plan, address, query)
            self._planned = plan
        out: Tensor = self._wrapper.run(query, _pages(shape, address))
        return out

    def _plan(self, shape: Shape, plan: KernelPlan, address: Address, query: Tensor) -> None:
        """Plan the wrapper for the step's spans; index arrays that it reads on the host stay in
        host memory.
        """
        ragged, table, page = plan.ragged, address.table, address.page
        assert ragged is not None
        assert table is not None
        pages = _span_pages(ragged, page)
        begins = np.concatenate(([0], pages.cumsum()))
        width = table.shape[1]
        at = np.concatenate([np.arange(count) + row * width for row, count in enumerate(pages)])
        last = np.asarray(ragged.context) - (pages - 1) * page
        spans = (
            _int32(begins),
            table.flatten()[torch.from_numpy(at).to(table.device)],
            _int32(last),
        )
        options: dict[str, Any] = {
            "page_size": page,
            "window_left": -1 if shape.window is None else shape.window - 1,
            "q_data_type": query.dtype,
            "kv_data_type": address.key.dtype,
        }
        heads = {"num_qo_heads": shape.heads, "num_kv_heads": shape.kv_heads}
        decodes = max(ragged.new) == 1
        self._wrapper = self._made(shape, query.device, decodes=decodes)
        if decodes:
            self._wrapper.plan(*spans, **heads, head_dim=shape.head_dim, **options)
            return
        rows = _int32(np.concatenate(([0], np.cumsum(ragged.new))))
        self._wrapper.plan(
            rows, *spans, **heads, head_dim_qk=shape.head_dim, causal=True, **options
        )

    def _made(self, shape: Shape, device: torch.device, *, decodes: bool) -> Any:
        """A new flashinfer wrapper for decode or for prefill, with its own workspace."""
        if decodes not in self._wrappers:
            space = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
            if decodes:
                made = self._package.BatchDecodeWithPagedKVCacheWrapper(
                    space, "NHD", use_tensor_cores=shape.group >= TENSOR_CORE_GROUP
                )
            else:
                made = self._package.BatchPrefillWithPagedKVCacheWrapper(space, "NHD")
            self._wrappers[decodes] = made
        return self._wrappers[decodes]


def _placed(
    shape: Shape, plan: KernelPlan, address: Address, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """Apply RoPE to query and key, write key and value to the cache, and return the query."""
    if query.is_cuda:
        from kvsim.backend.transformer import triton_attention

        return triton_attention.place(shape, plan, address, query, key, value)
    from kvsim.backend.transformer import reference

    return reference.place(shape, plan, address, query, key, value)


def _pages(shape: Shape, address: Address) -> tuple[Tensor, Tensor]:
    """Views of the K and V pools, [num_blocks, block_size, kv_heads, head_dim] each."""
    size = (-1, address.page, shape.kv_heads, shape.head_dim)
    return address.key.view(size), address.value.view(size)


def _span_pages(ragged: RaggedSpans, page: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    return -(-np.asarray(ragged.context) // page)


def _int32(numbers: "np.ndarray[Any, np.dtype[np.int64]]") -> Tensor:
    return torch.from_numpy(numbers.astype(np.int32))
