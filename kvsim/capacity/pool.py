"""The pool: how much device memory is left for KV, as vLLM sizes it or as the user gives it.

vLLM takes gpu_memory_utilization of the device's total and subtracts the weights, the peak of the
activations in a profiling run, what does not come from torch's allocator and, since 0.20, the CUDA
graphs it will capture. `estimate/` has an item a file; figures of a log replace the estimates. Of
several stages of a pipeline the one with the fewest blocks decides.
"""

from typing import NamedTuple

from kvsim.capacity.adapters import Adapters
from kvsim.capacity.deployment import Deployment
from kvsim.capacity.drafter import MTP, Drafter
from kvsim.capacity.estimate.items import Items, estimate
from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.planning import CachePlan, Serving, Speculation, plan_cache
from kvsim.capacity.planning.block_size import DEFAULT_BLOCK_SIZE
from kvsim.capacity.stage import Stage, stages
from kvsim.capacity.start_up import StartUp, start_up
from kvsim.device import Device
from kvsim.layout import KVLayout
from kvsim.model import Model, ModelOptions
from kvsim.model.find import find_model
from kvsim.model.kv_cache import LayerCache, grouped, layer_caches
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB

MOST_BYTES = 1 << 60  # an exbibyte; the tables hold 63 bits


class Pool(NamedTuple):
    """The KV pool of one GPU, itemised, in bytes.

    sized_by: the option that decided. With gpu_memory_utilization, total = unused + weights +
    activation + other + capacity, and other = non_torch + cuda_graph; otherwise these and unused
    are 0 and the capacity is what was given, whether the device has it or not.
    block_size: tokens a block; num_gpu_blocks: whole blocks in the capacity. The engine_ figures,
    kv_cache_size_tokens and max_concurrency are those that the engine of `engine_version` would
    set and log, its blocks' padding included.
    """

    sized_by: str
    total_bytes: int
    unused_bytes: int
    weights_bytes: int
    activation_bytes: int
    other_bytes: int
    capacity_bytes: int
    block_size: int
    num_gpu_blocks: int
    non_torch_bytes: int
    cuda_graph_bytes: int
    engine_version: str
    engine_block_size: int
    engine_num_gpu_blocks: int
    kv_cache_size_tokens: int
    max_concurrency: float


class Sized(NamedTuple):
    """A pool with what it was made from: the layout of the GPU's layers, the engine's plan of their
    cache and its closing lines.
    """

    pool: Pool
    layout: KVLayout
    plan: CachePlan
    start_up: StartUp


def size_pool(
    model: Model,
    device: Device,
    memory: MemoryOptions,
    model_options: ModelOptions,
    block_size: int,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 2048,
) -> Pool:
    """The pool of a simulated engine; arguments as of `size`. InputError for parallelism that the
    step times know nothing of.
    """
    for key in ("pipeline_parallel_size", "data_parallel_size"):
        if getattr(model_options, key) > 1:
            raise InputError(
                "a simulation runs one stage of one copy",
                where=f"model.{key}",
                value=getattr(model_options, key),
                limit=1,
                remedy="kvsim memory sizes the others",
            )
    return size(
        model, device, memory, model_options, block_size, max_num_seqs, max_num_batched_tokens
    ).pool


def size(
    model: Model,
    device: Device,
    memory: MemoryOptions,
    model_options: ModelOptions,
    block_size: int,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 2048,
) -> Sized:
    """The pool and the engine's plan of it.

    block_size: tokens in a block; the default one is left to the engine. max_num_seqs and
    max_num_batched_tokens are the scheduler's limits, which size the profiling run. Raises
    InputError if nothing is left after the weights and reserves.
    """
    model.check_tensor_parallel(model_options.tensor_parallel_size)
    if model_options.layout(model).bytes_per_token == 0:
        raise InputError("the model keeps no KV cache", where="model", value=model.name)
    if model_options.pipeline_parallel_size > model.num_layers:
        raise InputError(
            "a stage needs a layer",
            where="model.pipeline_parallel_size",
            value=model_options.pipeline_parallel_size,
            limit=model.num_layers,
        )
    deployment = Deployment(
        model,
        model_options,
        device,
        memory.version,
        model_options.model_len(model),
        max_num_seqs,
        max_num_batched_tokens,
        memory.enforce_eager,
        memory.max_cudagraph_capture_size,
        _drafter(memory),
        Adapters(memory.max_loras, memory.max_lora_rank) if memory.max_loras else None,
    )
    every = stages(model.layers, model_options.pipeline_parallel_size)
    sized = [_size_stage(deployment, stage, memory, block_size) for stage in every]
    return min(sized, key=lambda each: each.pool.engine_num_gpu_blocks)


def _size_stage(
    deployment: Deployment, stage: Stage, memory: MemoryOptions, block_size: int
) -> Sized:
    model, device, options = deployment.model, deployment.device, deployment.options
    caches = layer_caches(
        stage.layers,
        model.torch_dtype,
        options.kv_cache_dtype,
        options.tensor_parallel_size,
        options.kv_scale_group_size,
        options.kv_scale_bytes,
    )
    layout = grouped(caches)
    token_bytes = layout.bytes_per_token
    items = _as_given(memory, estimate(deployment, stage))
    unused = 0
    if memory.kv_cache_bytes is not None:
        sized_by, capacity = "kv_cache_bytes", memory.kv_cache_bytes
    elif memory.kv_cache_tokens is not None:
        sized_by, capacity = "kv_cache_tokens", memory.kv_cache_tokens * token_bytes
    elif memory.num_gpu_blocks is not None:
        sized_by, capacity = "num_gpu_blocks", memory.num_gpu_blocks * block_size * token_bytes
    else:
        sized_by = "gpu_memory_utilization"
        budget = int(device.memory_bytes * memory.utilization)
        unused, capacity = device.memory_bytes - budget, budget - items.total
        if capacity < token_bytes:
            raise _does_not_fit(deployment, memory.utilization, items)
    if capacity < block_size * token_bytes:
        raise InputError(
            "the pool holds less than one block",
            where="allocator.block_size",
            value=f"{block_size:,} tokens",
            limit=f"{capacity // token_bytes:,} tokens ({sized_by})",
            remedy="lower the block size, or give the pool more memory",
        )
    if capacity > MOST_BYTES:
        raise InputError(
            "the pool is larger than any memory",
            where=f"memory.{sized_by}",
            value=f"{capacity:,} bytes",
            limit=f"{MOST_BYTES:,} bytes",
        )
    if sized_by != "gpu_memory_utilization":
        weights = model.weight_bytes(deployment.tp) if memory.weights_gib is None else items.weights
        items = Items(weights, 0, 0, 0)
    plan = _plan(deployment, stage, caches, memory, block_size)
    blocks = plan.num_blocks(capacity)
    if memory.num_gpu_blocks is not None:
        blocks = memory.num_gpu_blocks
    said = start_up(plan, blocks, deployment.version)
    pool = Pool(
        sized_by=sized_by,
        total_bytes=device.memory_bytes,
        unused_bytes=unused,
        weights_bytes=items.weights,
        activation_bytes=items.activation,
        other_bytes=items.non_torch + items.cuda_graph,
        capacity_bytes=capacity,
        block_size=block_size,
        num_gpu_blocks=capacity // (block_size * max(1, token_bytes)),
        non_torch_bytes=items.non_torch,
        cuda_graph_bytes=items.cuda_graph,
        engine_version=memory.engine_version,
        engine_block_size=said.block_size,
        engine_num_gpu_blocks=said.num_gpu_blocks,
        kv_cache_size_tokens=said.kv_cache_size_tokens,
        max_concurrency=said.max_concurrency,
    )
    return Sized(pool, layout, plan, said)


def _plan(
    deployment: Deployment,
    stage: Stage,
    caches: tuple[LayerCache, ...],
    memory: MemoryOptions,
    block_size: int,
) -> CachePlan:
    version, options, drafter = deployment.version, deployment.options, deployment.drafter
    recurrent = any(cache.kind == "recurrent" for cache in caches)
    speculation: Speculation | None = None
    drafted: tuple[LayerCache, ...] = ()
    if drafter is not None:
        method = "mtp" if drafter.model is None else "draft_model"
        speculation = Speculation(method, drafter.tokens)
        if stage.last:
            drafted = drafter.caches(deployment.model, options.kv_cache_dtype, deployment.tp)
    caching = memory.enable_prefix_caching
    serving = Serving(
        max_model_len=deployment.max_model_len,
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        block_size=None if block_size == DEFAULT_BLOCK_SIZE else block_size,
        enable_prefix_caching=(
            (version.caches_hybrid_prefixes or not recurrent) if caching is None else caching
        ),
        batches_in_flight=version.batches_in_flight,
        decode_context_parallel_size=options.decode_context_parallel_size,
        speculation=speculation,
    )
    return plan_cache(caches, serving, drafted)


def _drafter(memory: MemoryOptions) -> Drafter | None:
    if memory.drafter is None:
        return None
    model = None if memory.drafter == MTP else find_model(memory.drafter, "memory.drafter")
    return Drafter(model, memory.num_speculative_tokens)


def _as_given(memory: MemoryOptions, items: Items) -> Items:
    """The estimates, but for what the user read off a log."""
    if memory.weights_gib is not None:
        items = items._replace(weights=int(memory.weights_gib * GIB))
    if memory.activation_gib is not None:
        items = items._replace(activation=int(memory.activation_gib * GIB))
    if memory.other_gib is not None:
        items = items._replace(non_torch=int(memory.other_gib * GIB), cuda_graph=0)
    return items


def _does_not_fit(deployment: Deployment, share: float, items: Items) -> InputError:
    device, reserves = deployment.device, items.total - items.weights
    budget = device.memory_bytes * share
    return InputError(
        f"no memory is left for KV: {deployment.model.name} takes {items.weights / GIB:.2f} GiB of "
        f"weights and {reserves / GIB:.2f} GiB of activations and other memory on each "
        f"{device.name}",
        where="memory.gpu_memory_utilization",
        value=f"{items.total / GIB:.2f} GiB",
        limit=f"{budget / GIB:.2f} GiB ({share:g} of {device.memory_bytes / GIB:.2f} GiB)",
        remedy="raise model.tensor_parallel_size, quantise the weights or take a larger device",
    )
