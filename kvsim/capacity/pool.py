"""The pool: how much device memory is left for KV, as vLLM sizes it or as the user gives it.

vLLM takes gpu_memory_utilization of the device's total and subtracts the weights, the peak of the
activations in a profiling run, what does not come from torch's allocator and, since 0.20, the CUDA
graphs it will capture. `estimate/` has an item a file; figures of a log replace the estimates.
"""

from typing import NamedTuple

from kvsim.capacity.deployment import Deployment
from kvsim.capacity.estimate.items import Items, estimate
from kvsim.capacity.options import MemoryOptions
from kvsim.device import Device
from kvsim.model import Model, ModelOptions
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB


class Pool(NamedTuple):
    """The KV pool of one GPU, itemised, in bytes.

    sized_by: the option that decided. With gpu_memory_utilization, total = unused + weights +
    activation + other + capacity, and other = non_torch + cuda_graph; otherwise these and unused
    are 0 and the capacity is what was given, whether the device has it or not.
    block_size: tokens a block; num_gpu_blocks: whole blocks in the capacity.
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


def size_pool(
    model: Model,
    device: Device,
    memory: MemoryOptions,
    model_options: ModelOptions,
    block_size: int,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 2048,
) -> Pool:
    """The pool that `memory` gives this model on this device.

    max_num_seqs and max_num_batched_tokens are the scheduler's limits, which size the profiling
    run. Raises InputError if nothing is left after the weights and reserves.
    """
    token_bytes = model_options.layout(model).bytes_per_token
    if token_bytes == 0:
        raise InputError("the model keeps no KV cache", where="model", value=model.name)
    deployment = Deployment(
        model,
        model_options,
        device,
        memory.version,
        model_options.model_len(model),
        max_num_seqs,
        max_num_batched_tokens,
        memory.enforce_eager,
    )
    items = _as_given(memory, estimate(deployment))
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
        if capacity < block_size * token_bytes:
            raise _does_not_fit(deployment, memory.utilization, items)
    if sized_by != "gpu_memory_utilization":
        items = Items(items.weights, 0, 0, 0)
    return Pool(
        sized_by=sized_by,
        total_bytes=device.memory_bytes,
        unused_bytes=unused,
        weights_bytes=items.weights,
        activation_bytes=items.activation,
        other_bytes=items.non_torch + items.cuda_graph,
        capacity_bytes=capacity,
        block_size=block_size,
        num_gpu_blocks=capacity // (block_size * token_bytes),
        non_torch_bytes=items.non_torch,
        cuda_graph_bytes=items.cuda_graph,
    )


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
