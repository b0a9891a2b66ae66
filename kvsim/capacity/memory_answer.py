"""Cost of a model's KV cache on a GPU, and the sequences that fit: the question and the answer of
`kvsim memory` for vLLM's pools.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from kvsim.capacity.fits import SequencesFit, fit
from kvsim.capacity.held_out import expected_error
from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.pool import Sized
from kvsim.capacity.sizing import size
from kvsim.device import Device
from kvsim.model import Model, ModelOptions
from kvsim.plumbing.errors import InputError

SHORTEST_TOKENS = 512


class MemoryQuestion(NamedTuple):
    """A model on a device, with vLLM's options.

    devices: the GPU of each pipeline stage. block_size: tokens of a block asked for. max_num_seqs,
    max_num_batched_tokens: of a step; None for the engine's. num_tokens: lengths of sequences to
    fit; empty for powers of two and lengths halfway between them. initial_tokens: of a first buffer
    under `doubling`. prefill_checkpoint_alignment: given where prefill writes recurrent states out
    within chunks.
    """

    model: ModelOptions
    devices: Sequence[Device]
    memory: MemoryOptions
    block_size: int
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    num_tokens: Sequence[int]
    initial_tokens: int
    prefill_checkpoint_alignment: int | None


class MemoryAnswer(NamedTuple):
    """The pool of a deployment and the sequences that fit. sized: the pool of the GPU with the
    fewest blocks; device: the kind of this GPU; devices: the GPUs of each stage. fits: numbers of
    sequences by length. first_start: the pool where no compiled code is cached; None if it equals
    `sized` or is what was asked for.
    """

    model: Model
    options: ModelOptions
    device: Device
    devices: Sequence[Device]
    max_model_len: int
    sized: Sized
    fits: list[SequencesFit]
    first_start: Sized | None = None


def memory_answer(question: MemoryQuestion) -> MemoryAnswer:
    """The answer; InputError for what the engine would refuse."""
    model, device, options = question.model.build(), question.devices[0], question.model
    options.check_used(model)
    sizing = question.memory.version.sizing
    seqs, tokens = sizing.default_limits(device.memory_bytes, device.name)
    exports = question.prefill_checkpoint_alignment is not None

    def sized_by(memory: MemoryOptions) -> Sized:
        return size(
            model,
            device,
            memory,
            options,
            question.block_size,
            question.max_num_seqs or seqs,
            question.max_num_batched_tokens or tokens,
            stage_devices=question.devices,
            exports_states=exports,
        )

    sized = sized_by(question.memory)
    kept = sized.plan.caches_states
    if exports and not (kept and sizing.exports_states):
        raise InputError(
            "not of this version" if kept else "no recurrent state is kept",
            where="--prefill-checkpoint-alignment",
            value=question.prefill_checkpoint_alignment,
            remedy="leave it out",
        )
    longest = options.model_len(model)
    fits = [
        fit(
            sized.layout,
            sized.plan,
            sized.pool.capacity_bytes,
            length,
            max_model_len=longest,
            initial_tokens=question.initial_tokens,
        )
        for length in _lengths(question.num_tokens, longest)
    ]
    deciding = question.devices[sized.stage]
    first = _first_start(question.memory, sized_by)
    if first is not None and first.pool.capacity_bytes == sized.pool.capacity_bytes:
        first = None
    return MemoryAnswer(model, options, deciding, question.devices, longest, sized, fits, first)


def _first_start(memory: MemoryOptions, sized_by: Callable[[MemoryOptions], Sized]) -> Sized | None:
    """The pool of a start without cached compiled code; None if that was asked for, or if it leaves
    nothing for KV.
    """
    if memory.first_start:
        return None
    try:
        return sized_by(memory.model_copy(update={"first_start": True}))
    except InputError:
        return None


def _lengths(given: Sequence[int], longest: int) -> list[int]:
    """The lengths asked for, or powers of two up to the longest sequence, in which doubling leaves
    nothing over.

    Lengths halfway between, in which it does, and the longest are added.
    """
    if not given:
        powers = (SHORTEST_TOKENS << i for i in range(64))
        lengths = (each for power in powers for each in (power, power * 3 // 2))
        return [*takewhile(lambda length: length < longest, lengths), longest]
    for tokens in given:
        if tokens > longest:
            raise InputError(
                "a sequence cannot be so long",
                where="--num-tokens",
                value=tokens,
                limit=f"{longest} tokens (max_model_len)",
            )
    return list(dict.fromkeys(given))


def as_json(answer: MemoryAnswer) -> dict[str, Any]:
    """All figures of the answer as JSON values, each of one GPU."""
    model, pool, layout = answer.model, answer.sized.pool, answer.sized.layout
    plan, options = answer.sized.plan, answer.options
    return {
        "model": model.name,
        "source": model.source,
        "num_params": model.num_params,
        "num_active_params": model.num_active_params,
        "device": answer.device.name,
        "tensor_parallel_size": options.tensor_parallel_size,
        "pipeline_parallel_size": options.pipeline_parallel_size,
        "pp_layer_partition": options.stage_layers,
        "data_parallel_size": options.data_parallel_size,
        "kv_cache_dtype": options.kv_cache_dtype,
        "max_model_len": answer.max_model_len,
        "bytes_per_token": layout.bytes_per_token,
        "groups": [
            {
                "kind": group.kind,
                "layers": group.layers,
                "bytes_per_token": group.bytes_per_token,
                "window_tokens": group.window_tokens,
                "state_bytes": group.state_bytes,
            }
            for group in layout.groups
        ],
        "sized_by": pool.sized_by,
        "device_bytes": pool.total_bytes,
        "unused_bytes": pool.unused_bytes,
        "weights_bytes": pool.weights_bytes,
        "activation_bytes": pool.activation_bytes,
        "other_bytes": pool.other_bytes,
        "non_torch_bytes": pool.non_torch_bytes,
        "cuda_graph_bytes": pool.cuda_graph_bytes,
        "pool_bytes": pool.capacity_bytes,
        "pool_tokens": pool.pool_tokens,
        "block_size": pool.block_size,
        "num_gpu_blocks": pool.num_gpu_blocks,
        "engine": {
            "version": pool.engine_version,
            "block_size": pool.engine_block_size,
            "num_gpu_blocks": pool.engine_num_gpu_blocks,
            "bytes_per_block": plan.bytes_per_block,
            "kv_cache_size_tokens": pool.kv_cache_size_tokens,
            "max_concurrency": pool.max_concurrency,
            "starts": answer.sized.start_up.starts,
            "longest_tokens": answer.sized.start_up.longest_tokens,
            "groups": [
                {
                    "kind": group.kind,
                    "layers": group.layers,
                    "block_size": group.block_size,
                    "page_bytes": list(group.page_bytes),
                    "window_tokens": group.window_tokens,
                    "chunk_tokens": group.chunk_tokens,
                }
                for group in plan.groups
            ],
            "log": list(answer.sized.start_up.lines()),
        },
        "expected_error": expected_error("vllm").figures(pool.kv_cache_size_tokens)
        if pool.sized_by == "gpu_memory_utilization"
        else None,
        "first_start": answer.first_start and _first_start_figures(answer.first_start),
        "stages": [share._asdict() for share in answer.sized.stages],
        "drafter": answer.sized.drafter and answer.sized.drafter._asdict(),
        "sequences": [fit._asdict() for fit in answer.fits],
    }


def _first_start_figures(sized: Sized) -> dict[str, Any]:
    pool = sized.pool
    return {
        "activation_bytes": pool.activation_bytes,
        "pool_bytes": pool.capacity_bytes,
        "num_gpu_blocks": pool.engine_num_gpu_blocks,
        "kv_cache_size_tokens": pool.kv_cache_size_tokens,
        "starts": sized.start_up.starts,
    }
