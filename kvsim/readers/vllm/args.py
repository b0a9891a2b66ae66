"""Convert vLLM's arguments, from a command line or a log, to settings."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kvsim.plumbing.counts import whole
from kvsim.plumbing.errors import InputError
from kvsim.readers.description import ServerSettings
from kvsim.readers.parsing.unread_flags import unread_notes

# Of values that only say "as you think best".
UNSAID = (None, "", "auto", "None", "none", "-1", -1)
KV_DTYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float": "fp32",
    "float32": "fp32",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_inc": "fp8",
}
# Quantisation that the server does itself; any other is the checkpoint's, which its config tells.
ONLINE_QUANTIZATIONS = {"fp8": "fp8", "fp8_per_tensor": "fp8", "fp8_per_block": "fp8"}


def fraction(value: Any) -> float:
    """Parse a value as a float."""
    return float(str(value))


def truth(value: Any) -> bool:
    """Parse a switch's value, such as `true` or `0`."""
    text = str(value).strip().lower()
    if text in ("true", "1", "yes", "on"):
        return True
    if text in ("false", "0", "no", "off"):
        return False
    raise ValueError("neither true nor false")


def dtype(value: Any) -> str:
    """The name of a data type without torch's prefix."""
    return str(value).removeprefix("torch.").lower()


def text(value: Any) -> str:
    """Convert a value to text without surrounding blanks."""
    return str(value).strip()


def kv_dtype(value: Any) -> str:
    """The name in kvsim of a KV cache data type."""
    name = dtype(value)
    return KV_DTYPES.get(name, name)


def largest(value: Any) -> int:
    """The largest of a list of numbers, given as a list or as text."""
    parts = value if isinstance(value, list | tuple) else str(value).strip("[]() ").split(",")
    return max((whole(part) for part in parts if part != ""), default=0)


def table(value: Any) -> dict[str, Any]:
    """The dict for a JSON object given as text, or for a dict."""
    found = json.loads(value) if isinstance(value, str) else value
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def items(value: Any) -> int:
    """The largest number of multimodal items in a prompt, summed over modalities."""
    limits = [each["count"] if isinstance(each, dict) else each for each in table(value).values()]
    return sum(map(whole, limits))


# vLLM's argument: the setting it is, and how it is read.
KNOWN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "model": ("model", text),
    "model_tag": ("model", text),
    "served_model_name": ("served_model_name", text),
    "tensor_parallel_size": ("tensor_parallel_size", whole),
    "pipeline_parallel_size": ("pipeline_parallel_size", whole),
    "data_parallel_size": ("data_parallel_size", whole),
    "decode_context_parallel_size": ("decode_context_parallel_size", whole),
    "enable_expert_parallel": ("enable_expert_parallel", truth),
    "dtype": ("dtype", dtype),
    "quantization": ("quantization", text),
    "kv_cache_dtype": ("kv_cache_dtype", kv_dtype),
    "mamba_ssm_cache_dtype": ("mamba_ssm_cache_dtype", kv_dtype),
    "language_model_only": ("language_model_only", truth),
    "max_model_len": ("max_model_len", whole),
    "max_seq_len": ("max_model_len", whole),
    "gpu_memory_utilization": ("gpu_memory_utilization", fraction),
    "enforce_eager": ("enforce_eager", truth),
    "block_size": ("block_size", whole),
    "num_gpu_blocks_override": ("num_gpu_blocks", whole),
    "kv_cache_memory_bytes": ("kv_cache_bytes", whole),
    "kv_cache_memory": ("kv_cache_bytes", whole),
    "kv_offloading_size": ("host_cache_gib", fraction),
    "kv_transfer_config": ("kv_transfer_config", table),
    "enable_prefix_caching": ("enable_prefix_caching", truth),
    "enable_chunked_prefill": ("enable_chunked_prefill", truth),
    "disable_hybrid_kv_cache_manager": ("disable_hybrid_kv_cache_manager", truth),
    "max_num_seqs": ("max_num_seqs", whole),
    "max_num_batched_tokens": ("max_num_batched_tokens", whole),
    "long_prefill_token_threshold": ("long_prefill_token_threshold", whole),
    "scheduler_reserve_full_isl": ("scheduler_reserve_full_isl", truth),
    "scheduling_policy": ("policy", text),
    "async_scheduling": ("async_scheduling", truth),
    "watermark": ("watermark", fraction),
    "prefix_cache_retention_interval": ("prefix_cache_retention_interval", whole),
    "prefix_match_unit": ("prefix_match_unit", whole),
    "max_cudagraph_capture_size": ("max_cudagraph_capture_size", whole),
    "cudagraph_capture_sizes": ("max_cudagraph_capture_size", largest),
    "cuda_graph_sizes": ("max_cudagraph_capture_size", largest),
    "enable_lora": ("enable_lora", truth),
    "max_loras": ("max_loras", whole),
    "max_lora_rank": ("max_lora_rank", whole),
    "max_cpu_loras": ("max_cpu_loras", whole),
    "disable_chunked_mm_input": ("disable_chunked_mm_input", truth),
    "limit_mm_per_prompt": ("limit_mm_per_prompt", items),
    "speculative_config": ("speculative_config", table),
}
_LORA = {"max_loras", "max_lora_rank", "max_cpu_loras"}
SWITCHES = frozenset(name for name, (_, read) in KNOWN.items() if read is truth)
LISTS = frozenset(name for name, (_, read) in KNOWN.items() if read is largest)
# A table that may hold arguments of its own: those of CUDA graphs.
COMPILATION = "compilation_config"
ARGUMENTS = frozenset((*KNOWN, COMPILATION))


def compiled(value: Any) -> dict[str, Any]:
    """The keys of a `--compilation-config` that are read; {} if it is not a table, such as the
    level 3.
    """
    try:
        given = table(value)
    except ValueError:
        return {}
    return {name: each for name, each in given.items() if name in KNOWN}


def settings_of(arguments: Mapping[str, Any], where: str) -> ServerSettings:
    """The settings in `arguments` that concern memory and scheduling; others are ignored.

    InputError for an argument with an invalid value.
    """
    found: dict[str, Any] = {}
    for name, value in {**compiled(arguments.get(COMPILATION)), **arguments}.items():
        if name not in KNOWN or (isinstance(value, str | int | None) and value in UNSAID):
            continue
        setting, read = KNOWN[name]
        try:
            known = read(value if name in LISTS else _first(value))
        except (ValueError, OverflowError) as fault:
            raise InputError(str(fault), where=f"{where}: {name}", value=value) from None
        if setting == "quantization":
            known = ONLINE_QUANTIZATIONS.get(known)
        if known is not None and known != "auto":
            found[setting] = known
    return ServerSettings.parse(found, where)


def setting_of(argument: str) -> str:
    """The name of the setting that an argument sets; the argument's own name if it is
    not in KNOWN.
    """
    return KNOWN[argument][0] if argument in KNOWN else argument


_ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}


def role_of(settings: ServerSettings) -> str | None:
    """The role prefill or decode that a server's kv_role gives; None for kv_both or no
    connector.
    """
    return _ROLES.get((settings.kv_transfer_config or {}).get("kv_role", ""))


def vllm_notes(asked: Mapping[str, Any], unread: Iterable[str]) -> list[str]:
    """Notes on arguments that are not read, or that have no effect."""
    notes = unread_notes(unread, ARGUMENTS)
    notes += compilation_notes(asked)
    if str(asked.get("max_model_len")) in ("auto", "-1"):
        notes.append("--max-model-len auto is the longest that fits the pool: the model's is taken")
    notes += quantization_notes(asked)
    notes += _inner_notes(asked)
    if not truth(asked.get("enable_lora", False)) and _LORA & asked.keys():
        notes.append("--max-loras and --max-lora-rank do nothing without --enable-lora")
    return notes


# Keys that are read, of flags that are tables.
_INNER = {
    "kv_transfer_config": {"kv_connector", "kv_role", "kv_connector_extra_config"},
    "limit_mm_per_prompt": {"count"},
}


def _inner_notes(asked: Mapping[str, Any]) -> list[str]:
    """Notes on unread keys of flags with a table as value, such as kv_transfer_config."""
    notes = []
    for name, read in _INNER.items():
        given = table(asked.get(name) or {})
        inner = given.values() if name == "limit_mm_per_prompt" else [given]
        left = {key for each in inner if isinstance(each, dict) for key in each} - read
        if left:
            notes.append(f"keys of {name} that are not read: {', '.join(sorted(left))}")
    return notes


def compilation_notes(asked: Mapping[str, Any]) -> list[str]:
    """A note on unread keys of `--compilation-config`."""
    if COMPILATION not in asked:
        return []
    try:
        rest = sorted(table(asked[COMPILATION]).keys() - KNOWN.keys())
    except ValueError:
        return ["flags that are not read: --compilation-config"]
    return [f"keys of --compilation-config that are not read: {', '.join(rest)}"] if rest else []


def quantization_notes(asked: Mapping[str, Any]) -> list[str]:
    """A note on a quantization that comes with the checkpoint and is read from its config."""
    kind = asked.get("quantization")
    if kind in UNSAID or str(kind) in ONLINE_QUANTIZATIONS:
        return []
    return [f"quantization {kind}: the weights' types are those of the model's config"]


def _first(value: Any) -> Any:
    """The first element of a list, such as several served names."""
    return value[0] if isinstance(value, list | tuple) and value else value
