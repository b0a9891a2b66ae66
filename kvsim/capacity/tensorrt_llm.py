"""The pool as TensorRT-LLM sizes it: a share of what is free after its profiling run.

    bytes  = (device - peak) * free_gpu_memory_fraction
    tokens = min(bytes, max_gpu_total_bytes, max_tokens * bytes of a token) // bytes of a token
    blocks = tokens / tokens of a block, rounded up

The peak is weights, activations of max_num_tokens prompt tokens, CUDA graphs and memory outside
torch. Source: _torch/pyexecutor/_util.py `configure_kv_cache_capacity`; before it,
cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp `calculateMaxNumBlocks`. Logs print free memory in
rounded GiB. Rounding up gives 631 blocks of 21.89 GiB (TensorRT-LLM#2268) and the 4,060 of NVIDIA's
page on memory. It gives one block less than another log. The peak is estimated as for vLLM. Sliding
windows keep every token, as without max_attention_window: gpt-oss-120b takes 73,728 bytes a token
in a log.
"""

from kvsim.capacity.deployment import Deployment
from kvsim.capacity.estimate.items import estimate
from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.pool import SizedPool
from kvsim.capacity.sizing import as_given, does_not_fit
from kvsim.capacity.stage import stages
from kvsim.capacity.user_sized import check_capacity
from kvsim.device import Device
from kvsim.model import Model, ModelOptions
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB, ceil_div

WAY = "free_gpu_memory_fraction"
DEFAULT_FRACTION = 0.9
TOKENS_PER_BLOCK = 32
MAX_NUM_SEQS, MAX_NUM_TOKENS = 2048, 8192
LARGEST_GRAPH = 128  # sequences, CudaGraphConfig's default


def trt_llm_pool(
    model: Model,
    device: Device,
    options: ModelOptions,
    memory: MemoryOptions,
    block_size: int,
    max_num_seqs: int = MAX_NUM_SEQS,
    max_num_batched_tokens: int = MAX_NUM_TOKENS,
) -> SizedPool:
    """The pool of one GPU; in `memory`, kv_cache_tokens is max_tokens and kv_cache_bytes is
    max_gpu_total_bytes. InputError for what this sizing is not followed in, by name, and where
    nothing is left.
    """
    _check(model, options)
    longest = options.model_len(model)
    tokens = max_num_batched_tokens
    deployment = Deployment(
        model,
        options,
        device,
        memory.version.sizing,
        longest,
        ceil_div(tokens, longest),  # the profiling run samples once for each prompt
        tokens,
        memory.enforce_eager,
        min(max_num_seqs, LARGEST_GRAPH),
    )
    (stage,) = stages(model.layers, 1)
    items = as_given(memory, estimate(deployment, stage))
    fraction = memory.free_gpu_memory_fraction
    if fraction is None or fraction == "auto":
        fraction = DEFAULT_FRACTION
    most = int((device.memory_bytes - items.total) * fraction)
    token_bytes = options.layout(model).bytes_per_token
    if most < token_bytes:
        raise does_not_fit(deployment, f"memory.{WAY}", 1.0, items)
    if memory.kv_cache_bytes is not None:
        most = min(most, memory.kv_cache_bytes)
    tokens = most // token_bytes
    if memory.kv_cache_tokens is not None:
        tokens = min(tokens, memory.kv_cache_tokens)
    blocks = ceil_div(tokens, block_size)
    capacity = blocks * block_size * token_bytes
    check_capacity(capacity, block_size, block_size * token_bytes, WAY)
    return SizedPool(
        sized_by=WAY,
        total_bytes=device.memory_bytes,
        unused_bytes=device.memory_bytes - items.total - capacity,
        weights_bytes=items.weights,
        activation_bytes=items.activation,
        other_bytes=items.non_torch + items.cuda_graph,
        capacity_bytes=capacity,
        block_size=block_size,
        num_gpu_blocks=blocks,
        pool_tokens=blocks * block_size,
        non_torch_bytes=items.non_torch,
        cuda_graph_bytes=items.cuda_graph,
        engine_version="tensorrt-llm",
        engine_block_size=block_size,
        engine_num_gpu_blocks=blocks,
        kv_cache_size_tokens=blocks * block_size,
        max_concurrency=blocks * block_size / longest,
    )


def _check(model: Model, options: ModelOptions) -> None:
    for key in ("pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size"):
        if getattr(options, key) > 1:
            raise InputError(
                "TensorRT-LLM's sizing is followed for GPUs that split layers alone",
                where=f"model.{key}",
                value=getattr(options, key),
                limit=1,
                remedy="leave it at 1, or size the pool as vLLM does",
            )
    model.check_tensor_parallel(options.tensor_parallel_size)
    caches = options.caches(model)
    if any(cache.own_block is not None or cache.kind == "recurrent" for cache in caches):
        raise InputError(
            "TensorRT-LLM's pools of recurrent states and compressed caches are not followed",
            where="model",
            value=model.name,
            remedy="give the pool by kv_cache_tokens alone",
        )


def log_lines(pool: SizedPool) -> list[str]:
    """The lines of the pool in the log of the server."""
    size = f"{pool.capacity_bytes / GIB:.2f} GiB for max tokens in paged KV cache"
    return [
        f"Number of tokens per block: {pool.block_size}.",
        f"[MemUsageChange] Allocated {size} ({pool.pool_tokens}).",
    ]
