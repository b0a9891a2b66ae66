"""Flags of `vllm serve` for the GPUs that share a model (vLLM 0.33.0, engine/arg_utils.py)."""

from collections.abc import Iterator, Mapping
from typing import Any

_SIZES = {
    "tensor_parallel_size": "--tensor-parallel-size",
    "pipeline_parallel_size": "--pipeline-parallel-size",
    "data_parallel_size": "--data-parallel-size",
    "decode_context_parallel_size": "--decode-context-parallel-size",
}


def parallel_flags(model: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Each flag with its value, if it has one, for the keys of a scenario's [model]. Sizes of 1 are
    left out, but for tensor_parallel_size where it is given.
    """
    for key, flag in _SIZES.items():
        size = model.get(key)
        if size is not None and (size > 1 or key == "tensor_parallel_size"):
            yield flag, str(size)
    if model.get("enable_expert_parallel"):
        yield ("--enable-expert-parallel",)


def stage_environment(model: Mapping[str, Any]) -> str:
    """The variable that deals the layers out to stages; empty where vLLM does it itself."""
    layers = model.get("pp_layer_partition")
    return f"VLLM_PP_LAYER_PARTITION={layers}" if layers else ""
