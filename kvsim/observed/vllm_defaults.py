"""vLLM's default for each setting that a recording leaves open.

`kvsim.vllm.versions` has the differences between versions. max_model_len defaults to the model's
own maximum.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvsim.device import named_device
from kvsim.model import named_model
from kvsim.plumbing.errors import InputError
from kvsim.vllm.rules import SizingRules
from kvsim.vllm.versions import vllm_version

Release = tuple[int, int]

NEWEST = "0.33.0"  # the newest version with known rules
_LONGEST = 2**20  # of a model that is not known


class Assumed(NamedTuple):
    """The value assumed for a setting that was not recorded, and the reason for it."""

    value: Any
    why: str


def release(version: str) -> Release:
    """(major, minor) of a vLLM version; InputError for text that is not a version."""
    try:
        major, minor = version.removeprefix("v").split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        raise InputError(
            "not a version", where="meta.json.vllm_version", value=version, limit="such as 0.19.0"
        ) from None


def assumed(recorded: Mapping[str, Any]) -> dict[str, Assumed]:
    """The engine's defaults for settings that `recorded` (meta.json without nulls) lacks.

    num_gpu_blocks is None: a pool that never fills. InputError if vllm_version is not a version.
    """
    version = str(recorded.get("vllm_version", NEWEST))
    at = release(version)
    default = f"vLLM {at[0]}.{at[1]}'s default"
    engine = vllm_version(f"{at[0]}.{at[1]}", "meta.json.vllm_version").sizing
    seqs, tokens = _batch(recorded, engine, default)
    most = recorded.get("max_num_batched_tokens", tokens.value)
    if isinstance(most, int):
        seqs = seqs._replace(value=min(seqs.value, most))
    known = {
        "vllm_version": Assumed(version, "the newest with known rules"),
        "max_model_len": _longest(str(recorded.get("model", ""))),
        "block_size": Assumed(16, default),
        "enable_prefix_caching": Assumed(engine.caches_prefixes, default),
        "async_scheduling": Assumed(engine.schedules_ahead, default),
        "max_num_seqs": seqs,
        "max_num_batched_tokens": tokens,
        "num_gpu_blocks": Assumed(None, "not recorded: a pool that never fills"),
    }
    return {name: value for name, value in known.items() if name not in recorded}


def _batch(
    recorded: Mapping[str, Any], engine: SizingRules, default: str
) -> tuple[Assumed, Assumed]:
    gpu, memory_bytes = str(recorded.get("gpu", "")), recorded.get("gpu_memory_bytes")
    if not isinstance(memory_bytes, int | float):
        try:
            memory_bytes = named_device(gpu).memory_bytes
        except InputError:
            why = f"{default} on a small GPU; the memory of this one is not known"
            return Assumed(256, why), Assumed(2048, why)
    seqs, tokens = engine.default_limits(int(memory_bytes), gpu.lower())
    why = f"{default} for an API server on this GPU"
    return Assumed(seqs, why), Assumed(tokens, why)


def _longest(model: str) -> Assumed:
    try:
        longest = named_model(model).max_position_embeddings
    except InputError:
        return Assumed(_LONGEST, "the model's own maximum is not known")
    return Assumed(longest, "the model's own maximum")
