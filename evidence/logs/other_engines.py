"""Size the pool of a log row of SGLang or TensorRT-LLM by that engine's rules.

Some CSV columns hold these engines' own options. gpu_memory_utilization is mem_fraction_static or
free_gpu_memory_fraction. block_size is page_size or tokens_per_block. max_num_batched_tokens is
chunked_prefill_size or max_num_tokens, and max_num_seqs is max_running_requests or max_batch_size.
"""

from typing import NamedTuple

from evidence.logs.row import LogRow
from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.sglang.settings import SglangSettings
from kvsim.capacity.sglang.sizing import size_sglang
from kvsim.capacity.tensorrt_llm import (
    MAX_NUM_SEQS,
    MAX_NUM_TOKENS,
    TOKENS_PER_BLOCK,
    WAY,
    trt_llm_pool,
)
from kvsim.device import Device
from kvsim.model import Model, ModelOptions

# By the words of engine_version that name the engine.
SGLANG, TRT_LLM = "sglang", "tensorrt-llm"
ENGINES = {"sglang": SGLANG, "tensorrt": TRT_LLM, "trt-llm": TRT_LLM, "trtllm": TRT_LLM}


class OtherPool(NamedTuple):
    """The sized pool on one GPU. pool_bytes: bytes of all pools. tokens: tokens available to
    admission.
    """

    pool_bytes: int
    weights_bytes: int
    tokens: int

    def tokens_in(self, size: int) -> int:
        """Tokens that a pool of `size` bytes holds, at this model's bytes per token."""
        return size * self.tokens // self.pool_bytes


def engine_of(engine_version: str) -> str | None:
    """The engine that the row's version names, "sglang" or "tensorrt-llm"; None for any other."""
    lower = engine_version.lower()
    return next((engine for word, engine in ENGINES.items() if word in lower), None)


def size_other(
    engine: str, row: LogRow, model: Model, options: ModelOptions, device: Device
) -> OtherPool:
    """Size the pool as this engine does; missing settings have the engine's defaults."""
    if engine == SGLANG:
        flags = {
            "mem_fraction_static": row.utilization,
            "page_size": row.block_size or 1,
            "chunked_prefill_size": row.max_num_batched_tokens,
            "max_running_requests": row.max_num_seqs,
        }
        found = size_sglang(model, device, options, SglangSettings.parse(flags, row.id))
        pools = found.pools
        total = pools.kv_bytes + pools.window_bytes + pools.state_bytes
        return OtherPool(total, found.weights_bytes, pools.tokens)
    given = {WAY: row.utilization or "auto", "enforce_eager": row.enforce_eager}
    pool = trt_llm_pool(
        model,
        device,
        options,
        MemoryOptions.parse(given, row.id),
        row.block_size or TOKENS_PER_BLOCK,
        row.max_num_seqs or MAX_NUM_SEQS,
        row.max_num_batched_tokens or MAX_NUM_TOKENS,
    )
    return OtherPool(pool.capacity_bytes, pool.weights_bytes, pool.pool_tokens)
