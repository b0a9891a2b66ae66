"""What `kvsim memory` found out, and the same as JSON."""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kvsim.capacity.fits import Fit
    from kvsim.capacity.pool import Sized
    from kvsim.device import Device
    from kvsim.model import Model, ModelOptions


class Answer(NamedTuple):
    """sized: the pool of the GPU that has the least. fits: sequences by length; none where the
    caches come in blocks of their own.
    """

    model: "Model"
    options: "ModelOptions"
    device: "Device"
    max_model_len: int
    sized: "Sized"
    fits: "list[Fit]"


def pool_tokens(answer: Answer) -> int:
    """Tokens that the pool holds; where none costs anything, or less the more there are, those that
    the engine says.
    """
    pool, token_bytes = answer.sized.pool, answer.sized.layout.bytes_per_token
    if not token_bytes or not answer.fits:
        return pool.kv_cache_size_tokens
    return pool.capacity_bytes // token_bytes


def as_json(answer: Answer) -> dict[str, Any]:
    """Every figure, of one GPU."""
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
        "pool_tokens": pool_tokens(answer),
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
        "drafter": answer.sized.drafter and answer.sized.drafter._asdict(),
        "sequences": [fit._asdict() for fit in answer.fits],
    }
