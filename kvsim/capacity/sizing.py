"""The KV pool of a deployment, as vLLM sizes it or as the user gives it.

vLLM takes gpu_memory_utilization of the device's total and subtracts the weights and the peak of
the activations in a profiling run. It also subtracts memory outside torch's allocator and, since
0.20, the CUDA graphs it will capture. `estimate/` has an item a file; figures of a log replace the
estimates. Of several stages of a pipeline the one with the fewest blocks decides.
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from kvsim.capacity.adapters import Adapters
from kvsim.capacity.deployment import Deployment
from kvsim.capacity.drafter import MTP, OTHER_METHODS, Drafter
from kvsim.capacity.engine_counts import counts_every_token
from kvsim.capacity.estimate.items import Items, estimate
from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.planning import CachePlan, Serving, Speculation, plan_cache
from kvsim.capacity.planning.plan import DEFAULT_BLOCK_SIZE
from kvsim.capacity.pool import Sized, SizedPool, StageShare
from kvsim.capacity.stage import Stage, stages
from kvsim.capacity.start_up import start_up
from kvsim.capacity.user_sized import check_capacity, user_sized_pool
from kvsim.device import Device
from kvsim.model import Model, ModelOptions
from kvsim.model.find import find_model, is_of_file
from kvsim.model.kv_cache import LayerCache, grouped, layer_caches, widened
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB


def size(
    model: Model,
    device: Device,
    memory: MemoryOptions,
    model_options: ModelOptions,
    block_size: int,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 2048,
    drafter: Drafter | None = None,
    stage_devices: Sequence[Device] = (),
    *,
    exports_states: bool = False,
    as_logged: bool = True,
) -> Sized:
    """The pool and the engine's plan of its blocks.

    block_size: tokens in a block; the engine may replace the default. max_num_seqs,
    max_num_batched_tokens: the scheduler's limits, which size the profiling run. drafter: a drafter
    that `memory` does not name. stage_devices: of each stage of a pipeline, where they are not all
    `device`. exports_states: see Serving. as_logged: num_gpu_blocks and
    kv_cache_tokens are what the engine of this version logs; else they lie in all layers.
    InputError if weights and reserves leave nothing.
    """
    model.check_tensor_parallel(model_options.tensor_parallel_size)
    model.check_decode_context(
        model_options.tensor_parallel_size, model_options.decode_context_parallel_size
    )
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
        memory.version.sizing,
        model_options.model_len(model),
        max_num_seqs,
        max_num_batched_tokens,
        memory.enforce_eager,
        memory.max_cudagraph_capture_size,
        _drafter(memory, drafter),
        Adapters(memory.max_loras, memory.max_lora_rank) if memory.max_loras else None,
        memory.flashinfer_sampler,
        memory.first_start,
    )
    if memory.flashinfer_sampler and not deployment.has_flashinfer:
        raise InputError(
            "FlashInfer does not sample here",
            where="memory.flashinfer_sampler",
            value="true",
            limit="vLLM 0.8 or later, on an NVIDIA GPU",
            remedy="leave it out",
        )
    every = stages(model.layers, model_options.pipeline_parallel_size, model_options.stage_layers)
    caches = [_caches(deployment, stage) for stage in every]
    drafted = _drafted(deployment, every[-1])

    def plan(held: range | None) -> CachePlan:
        return _plan(deployment, caches, drafted, held, memory, block_size, exports_states)

    sized, shares, end = [], [], 0
    for place, (stage, kept) in enumerate(zip(every, caches, strict=True)):
        start, end = end, end + len(kept)
        if kept:  # a stage that keeps nothing holds any number of blocks
            last = end + (len(drafted) if stage.last else 0)
            own = plan(None if len(every) == 1 else range(start, last))
            here = deployment._replace(device=stage_devices[place]) if stage_devices else deployment
            each = _size_stage(here, stage, kept, memory, own, block_size, as_logged)
            shares.append(StageShare.of(len(stage.layers), here.device.name, each.pool))
            sized.append(each._replace(stage=place))
    if not sized:
        raise InputError("the model keeps no KV cache", where="model", value=model.name)
    fewest = min(sized, key=lambda each: each.pool.engine_num_gpu_blocks)
    padding = plan(None).padding if memory.version.blocks.several_tables else ()
    return fewest._replace(start_up=fewest.start_up._replace(padding=padding), stages=tuple(shares))


def _caches(deployment: Deployment, stage: Stage) -> tuple[LayerCache, ...]:
    options = deployment.options
    return layer_caches(
        stage.layers,
        deployment.model.torch_dtype,
        deployment.kv_cache_dtype,
        options.tensor_parallel_size,
        options.kv_scale_group_size,
        options.kv_scale_bytes,
    )


def _size_stage(
    deployment: Deployment,
    stage: Stage,
    caches: tuple[LayerCache, ...],
    memory: MemoryOptions,
    plan: CachePlan,
    block_size: int,
    as_logged: bool,
) -> Sized:
    drafter, drafted = deployment.drafter, _drafted(deployment, stage)
    layout, device = grouped(caches), deployment.device
    if drafter is not None:
        layout = grouped(widened(caches, drafter.tokens), drafted)
    items = as_given(memory, estimate(deployment, stage))
    as_logged = plan.packed or (as_logged and memory.version.blocks.several_tables)
    if plan.packed:
        block_size = plan.block_size
    block_bytes = plan.bytes_per_block if as_logged else block_size * layout.bytes_per_token
    sized_by, capacity = user_sized_pool(memory, layout, plan, block_size, as_logged=as_logged)
    unused = 0
    if sized_by == "gpu_memory_utilization":
        budget = int(device.memory_bytes * memory.utilization)
        unused, capacity = device.memory_bytes - budget, budget - items.total
        if capacity < max(layout.bytes_per_token, 1):
            raise does_not_fit(
                deployment, "memory.gpu_memory_utilization", memory.utilization, items
            )
    else:
        whole = stage.first and stage.last and memory.weights_gib is None
        weights = deployment.model.weight_bytes(deployment.tp) if whole else items.weights
        items = Items(weights, 0, 0, 0)
    check_capacity(capacity, block_size, block_bytes, sized_by)
    log = start_up(
        plan,
        plan.num_blocks(capacity),
        deployment.version,
        deployment.max_num_seqs,
        eager=deployment.enforce_eager,
    )
    pool = SizedPool(
        sized_by=sized_by,
        total_bytes=device.memory_bytes,
        unused_bytes=unused,
        weights_bytes=items.weights,
        activation_bytes=items.activation,
        other_bytes=items.non_torch + items.cuda_graph,
        capacity_bytes=capacity,
        block_size=block_size,
        num_gpu_blocks=capacity // block_bytes if block_bytes else log.num_gpu_blocks,
        pool_tokens=(
            log.kv_cache_size_tokens
            if not layout.bytes_per_token or (as_logged and not counts_every_token(plan, layout))
            else capacity // layout.bytes_per_token
        ),
        non_torch_bytes=items.non_torch,
        cuda_graph_bytes=items.cuda_graph,
        engine_version=memory.engine_version,
        engine_block_size=log.block_size,
        engine_num_gpu_blocks=log.num_gpu_blocks,
        kv_cache_size_tokens=log.kv_cache_size_tokens,
        max_concurrency=log.max_concurrency,
    )
    cost = None
    if drafter is not None:
        dtype, tp = deployment.kv_cache_dtype, deployment.tp
        cost = drafter.cost(deployment.model, caches, dtype, tp)
    return Sized(pool, layout, plan, log, cost)


def _plan(
    deployment: Deployment,
    by_stage: Sequence[tuple[LayerCache, ...]],
    drafted: tuple[LayerCache, ...],
    held: range | None,
    memory: MemoryOptions,
    block_size: int,
    exports_states: bool,
) -> CachePlan:
    """The plan of all stages; held: indices of the layers on one stage."""
    caches = tuple(chain(*by_stage))
    version, options, drafter = deployment.version, deployment.options, deployment.drafter
    recurrent = any(cache.kind == "recurrent" for cache in caches)
    # By default nothing is cached of a model without attention.
    attending = any(cache.bytes_per_token for cache in caches)
    caching = memory.enable_prefix_caching
    serving = Serving(
        max_model_len=deployment.max_model_len,
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        block_size=None if block_size == DEFAULT_BLOCK_SIZE else block_size,
        enable_prefix_caching=attending and (memory.version.blocks.caches_states or not recurrent)
        if caching is None
        else caching,
        batches_in_flight=version.batches_in_flight,
        exports_states=exports_states,
        decode_context_parallel_size=options.decode_context_parallel_size,
        speculation=None if drafter is None else drafter.speculation,
        packing=memory.version.blocks.packing,
        frees_chunks=version.frees_chunks,
    )
    return plan_cache(caches, serving, drafted, held)


def _drafted(deployment: Deployment, stage: Stage) -> tuple[LayerCache, ...]:
    """The caches of the drafter's layers on this stage."""
    drafter = deployment.drafter
    if drafter is None or not stage.last:
        return ()
    return drafter.caches(deployment.model, deployment.kv_cache_dtype, deployment.tp)


def _drafter(memory: MemoryOptions, configured: Drafter | None) -> Drafter | None:
    if memory.drafter is None:
        return configured
    if configured is not None:
        raise InputError(
            "speculative_config names the drafter",
            where="memory.drafter",
            value=memory.drafter,
            remedy="leave it out",
        )
    tokens = memory.num_speculative_tokens
    if memory.drafter == MTP:
        return Drafter(None, Speculation("mtp", tokens))
    if memory.drafter in OTHER_METHODS:
        raise InputError(
            "the name of a method, not of a drafter",
            where="memory.drafter",
            value=memory.drafter,
            remedy="give the drafter's name or the path of its config.json; the table "
            "[speculative_config] of a scenario takes methods",
        )
    if is_of_file(memory.drafter):
        model = Model.from_hf(Path(memory.drafter))
    else:
        model = find_model(memory.drafter, "memory.drafter")
    reader = model.target_reader
    method = "draft_model" if reader is None else reader.method
    return Drafter(model, Speculation(method, tokens))


def as_given(memory: MemoryOptions, items: Items) -> Items:
    """The estimates, replaced where the user gives figures of a log."""
    if memory.weights_gib is not None:
        items = items._replace(weights=int(memory.weights_gib * GIB))
    if memory.activation_gib is not None:
        items = items._replace(activation=int(memory.activation_gib * GIB))
    if memory.other_gib is not None:
        items = items._replace(non_torch=int(memory.other_gib * GIB), cuda_graph=0)
    return items


def does_not_fit(deployment: Deployment, where: str, share: float, items: Items) -> InputError:
    """The InputError for items (weights, activations ...) that exceed the engine's share of the
    device.
    """
    device, reserves = deployment.device, items.total - items.weights
    budget = device.memory_bytes * share
    return InputError(
        f"no memory is left for KV: {deployment.model.name} takes {items.weights / GIB:.2f} GiB of "
        f"weights and {reserves / GIB:.2f} GiB of activations and other memory on each "
        f"{device.name}",
        where=where,
        value=f"{items.total / GIB:.2f} GiB",
        limit=f"{budget / GIB:.2f} GiB ({share:g} of {device.memory_bytes / GIB:.2f} GiB)",
        remedy="raise model.tensor_parallel_size, quantise the weights or take a larger device",
    )
