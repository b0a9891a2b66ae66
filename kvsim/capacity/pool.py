"""The pool: how much device memory is left for KV, as vLLM sizes it or as the user gives it.

vLLM takes gpu_memory_utilization of the device's total and subtracts the weights, the peak of the
activations in a profiling run, and what does not come from torch's allocator. The last two are
estimated here:

    activations = max(forward, sampler)
    forward     = max_num_batched_tokens * dtype bytes * (3 * hidden + widest intermediate), where
                  the widest intermediate is q, k, v or the feed-forward's, split over the GPUs
    sampler     = max_num_seqs * vocabulary * 39 bytes: logits and the copies, sorted values and
                  indices of sampling from them, which every GPU holds in full
    other       = 0.13 GiB on one GPU, 0.55 GiB on each of several (NCCL's buffers)

The 39 bytes and `other` are read off vLLM's own start-up logs: github.com/llm-d/llm-d-benchmark,
config_explorer/empirical-vllm-memory-results.md (H100, 1,024 sequences: 4.76 GiB for Llama-3.1-8B,
5.56 for Qwen3-0.6B, 7.38 for gpt-oss-20b, 4.84 for Llama-3.3-70B on two GPUs, which are 38 to 40
bytes a logit) and github.com/vllm-project/vllm/pull/10511 (256 sequences, Llama-3-8B on one GPU and
on two: 1.26 GiB, 41 bytes). An RTX 4090 run showed 32. Give activation_gib to replace the estimate.
"""

from typing import NamedTuple, Self

from pydantic import Field, model_validator

from kvsim.device import Device
from kvsim.model import Attention, Model, ModelOptions
from kvsim.model.weights import DTYPE_BYTES
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import GIB

DEFAULT_UTILIZATION = 0.9
SAMPLER_BYTES_PER_LOGIT = 39
OTHER_GIB_ONE_GPU = 0.13
OTHER_GIB_SEVERAL = 0.55
WAYS = ("gpu_memory_utilization", "kv_cache_bytes", "kv_cache_tokens", "num_gpu_blocks")
RESERVES = ("weights_gib", "activation_gib", "other_gib")


class MemoryOptions(Options):
    """At most one of gpu_memory_utilization (default 0.9), kv_cache_bytes, kv_cache_tokens and
    num_gpu_blocks (blocks of the allocator's block_size tokens).

    weights_gib, activation_gib, other_gib: what vLLM's log says of one GPU, instead of the
    estimates; they belong to gpu_memory_utilization.
    """

    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    kv_cache_bytes: int | None = Field(default=None, gt=0)
    kv_cache_tokens: int | None = Field(default=None, gt=0)
    num_gpu_blocks: int | None = Field(default=None, gt=0)
    weights_gib: float | None = Field(default=None, ge=0)
    activation_gib: float | None = Field(default=None, ge=0)
    other_gib: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = [way for way in WAYS if getattr(self, way) is not None]
        if len(given) > 1:
            raise ValueError(f"give one of {', '.join(WAYS)}, not {' and '.join(given)}")
        idle = [key for key in RESERVES if getattr(self, key) is not None]
        if idle and given and given != ["gpu_memory_utilization"]:
            raise ValueError(f"{given[0]} fixes the pool, so {idle[0]} would change nothing")
        return self


class Pool(NamedTuple):
    """The KV pool of one GPU, itemised, in bytes.

    sized_by: the option that decided. With gpu_memory_utilization, total = unused + weights +
    activation + other + capacity; otherwise activation, other and unused are 0 and the capacity is
    what was given, whether the device has it or not.
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
    layout = model_options.layout(model)
    token_bytes = layout.bytes_per_token
    if token_bytes == 0:
        raise InputError("the model keeps no KV cache", where="model", value=model.name)
    tp = model_options.tensor_parallel_size
    weights = _bytes(memory.weights_gib, model.weight_bytes(tp))
    unused = activation = other = 0
    if memory.kv_cache_bytes is not None:
        sized_by, capacity = "kv_cache_bytes", memory.kv_cache_bytes
    elif memory.kv_cache_tokens is not None:
        sized_by, capacity = "kv_cache_tokens", memory.kv_cache_tokens * token_bytes
    elif memory.num_gpu_blocks is not None:
        sized_by, capacity = "num_gpu_blocks", memory.num_gpu_blocks * block_size * token_bytes
    else:
        sized_by = "gpu_memory_utilization"
        share = memory.gpu_memory_utilization or DEFAULT_UTILIZATION
        budget = int(device.memory_bytes * share)
        unused = device.memory_bytes - budget
        activation = _bytes(
            memory.activation_gib,
            activation_bytes(model, tp, max_num_seqs, max_num_batched_tokens),
        )
        several = OTHER_GIB_SEVERAL if tp > 1 else OTHER_GIB_ONE_GPU
        other = _bytes(memory.other_gib, int(several * GIB))
        capacity = budget - weights - activation - other
        if capacity < block_size * token_bytes:
            raise _does_not_fit(model, device, share, weights, activation + other)
    return Pool(
        sized_by=sized_by,
        total_bytes=device.memory_bytes,
        unused_bytes=unused,
        weights_bytes=weights,
        activation_bytes=activation,
        other_bytes=other,
        capacity_bytes=capacity,
        block_size=block_size,
        num_gpu_blocks=capacity // (block_size * token_bytes),
    )


def activation_bytes(
    model: Model, tensor_parallel_size: int, max_num_seqs: int, max_num_batched_tokens: int
) -> int:
    """Estimated peak of the activations on one GPU; form and source at the head of this file."""
    widest = 0
    for layer in set(model.layers):
        mixer, qkv = layer.mixer, 0
        if isinstance(mixer, Attention):
            qkv = (mixer.heads + 2 * mixer.kv_heads) * mixer.head_dim
        widest = max(widest, qkv, layer.feed_forward.peak_width())
    per_token = 3 * model.hidden_size + widest // tensor_parallel_size
    forward = max_num_batched_tokens * per_token * DTYPE_BYTES[model.torch_dtype]
    rows = min(max_num_seqs, max_num_batched_tokens)
    return max(forward, rows * model.vocab_size * SAMPLER_BYTES_PER_LOGIT)


def _bytes(given_gib: float | None, estimate: int) -> int:
    return estimate if given_gib is None else int(given_gib * GIB)


def _does_not_fit(
    model: Model, device: Device, share: float, weights: int, reserves: int
) -> InputError:
    budget = device.memory_bytes * share
    return InputError(
        f"no memory is left for KV: {model.name} takes {weights / GIB:.2f} GiB of weights and "
        f"{reserves / GIB:.2f} GiB of activations and other memory on each {device.name}",
        where="memory.gpu_memory_utilization",
        value=f"{(weights + reserves) / GIB:.2f} GiB",
        limit=f"{budget / GIB:.2f} GiB ({share:g} of {device.memory_bytes / GIB:.2f} GiB)",
        remedy="raise model.tensor_parallel_size, quantise the weights or take a larger device",
    )
