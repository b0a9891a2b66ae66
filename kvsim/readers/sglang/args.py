"""Convert SGLang's arguments, from a command line or a log, to settings."""

from collections.abc import Callable, Sequence
from typing import Any

from kvsim.engine.schedulers.sglang.policies import SCHEDULE_POLICIES
from kvsim.plumbing.counts import whole
from kvsim.plumbing.errors import InputError
from kvsim.readers.vllm.args import (
    ONLINE_QUANTIZATIONS,
    UNSAID,
    dtype,
    fraction,
    kv_dtype,
    quantization_notes,
    text,
    truth,
)

POLICIES = SCHEDULE_POLICIES.own
_WHOLE_PROMPTS = "chunked_prefill_size"  # of which -1 says something
KNOWN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "model_path": ("model", text),
    "served_model_name": ("served_model_name", text),
    "tp_size": ("tensor_parallel_size", whole),
    "pp_size": ("pipeline_parallel_size", whole),
    "pp_max_micro_batch_size": ("pp_max_micro_batch_size", whole),
    "dp_size": ("data_parallel_size", whole),
    "attn_dp_size": ("attention_dp_size", whole),
    "enable_dp_attention": ("enable_dp_attention", truth),
    "ep_size": ("enable_expert_parallel", lambda gpus: whole(gpus) > 1),
    "dtype": ("dtype", dtype),
    "quantization": ("quantization", ONLINE_QUANTIZATIONS.get),
    "kv_cache_dtype": ("kv_cache_dtype", kv_dtype),
    "context_length": ("max_model_len", whole),
    "context_len": ("max_model_len", whole),
    "mem_fraction_static": ("mem_fraction_static", fraction),
    "mamba_full_memory_ratio": ("mamba_full_memory_ratio", fraction),
    "max_total_tokens": ("max_total_tokens", whole),
    "page_size": ("block_size", whole),
    "max_running_requests": ("max_num_seqs", whole),
    "chunked_prefill_size": ("chunked_prefill_size", int),
    "max_prefill_tokens": ("max_prefill_tokens", whole),
    "schedule_policy": ("schedule_policy", lambda name: name if name in POLICIES else None),
    "enable_priority_scheduling": ("enable_priority_scheduling", truth),
    "schedule_low_priority_values_first": ("schedule_low_priority_values_first", truth),
    "priority_scheduling_preemption_threshold": (
        "priority_scheduling_preemption_threshold",
        whole,
    ),
    "disable_priority_preemption": ("disable_priority_preemption", truth),
    "schedule_conservativeness": ("schedule_conservativeness", fraction),
    "enable_mixed_chunk": ("enable_mixed_chunk", truth),
    "disable_overlap_schedule": ("disable_overlap_schedule", truth),
    "disable_radix_cache": ("enable_prefix_caching", lambda value: not truth(value)),
    "disable_cuda_graph": ("enforce_eager", truth),
    "enable_flashinfer_allreduce_fusion": ("tuned", lambda value: truth(value) or None),
    "enable_torch_compile": ("tuned", lambda value: truth(value) or None),
    "moe_runner_backend": ("tuned", lambda name: "flashinfer" in str(name) or None),
    "enable_flashinfer_trtllm_moe": ("tuned", lambda value: truth(value) or None),
    "enable_hierarchical_cache": ("enable_hierarchical_cache", truth),
    "hicache_ratio": ("hicache_ratio", lambda value: fraction(value) or None),
    "hicache_size": ("hicache_size", lambda value: fraction(value) or None),
    "hicache_write_policy": ("hicache_write_policy", text),
    "hicache_storage_backend": ("hicache_storage_backend", text),
    "hicache_storage_prefetch_policy": ("hicache_storage_prefetch_policy", text),
}
SWITCHES = frozenset(
    (
        *("enable_mixed_chunk", "disable_overlap_schedule", "disable_radix_cache"),
        *("enable_hierarchical_cache", "enable_dp_attention", "disable_cuda_graph"),
        *("enable_flashinfer_allreduce_fusion", "enable_torch_compile"),
        *("enable_priority_scheduling", "schedule_low_priority_values_first"),
        *("disable_priority_preemption", "enable_flashinfer_trtllm_moe"),
    )
)
DP_CONSERVATIVENESS = 0.3  # times schedule_conservativeness, with copies of the attention


def take(found: dict[str, Any], pairs: dict[str, Any], where: str) -> None:
    """Put the settings for these arguments into `found`; InputError for an invalid value."""
    for name, value in pairs.items():
        if value is None:
            continue
        if name in KNOWN and (value not in UNSAID or name == _WHOLE_PROMPTS):
            setting, read = KNOWN[name]
            try:
                known = read(value)
            except (TypeError, ValueError):
                raise InputError("no value of it", where=f"{where}: {name}", value=value) from None
            if known is not None:
                found[setting] = known


def split_attention(found: dict[str, Any], where: str, *, resolved: bool) -> None:
    """Convert the settings of a server with data-parallel attention to those of one attention rank,
    as SGLang 0.5.23 does.

    Such a server has attn_dp_size, or dp_size with enable_dp_attention. resolved: the values come
    from the server itself, which has already divided all of them except max_running_requests.
    """
    asked = found.pop("enable_dp_attention", False)
    copies = found.pop("attention_dp_size", None) or 1
    if asked and copies == 1:
        copies = found.get("data_parallel_size", 1)
    if copies == 1:
        return
    gpus = found.get("tensor_parallel_size", 1)
    if gpus % copies:
        raise InputError(
            "the copies of the attention cannot share the GPUs evenly",
            where=f"{where}: tp_size",
            value=gpus,
            limit=f"a multiple of attn_dp_size = {copies}",
        )
    found |= {"attention_dp_size": copies, "data_parallel_size": copies}
    found["tensor_parallel_size"] = gpus // copies
    if "max_num_seqs" in found:
        found["max_num_seqs"] = max(1, found["max_num_seqs"] // copies)
    if resolved:
        return
    if found.get("chunked_prefill_size", 0) > 0:
        found["chunked_prefill_size"] = max(1, found["chunked_prefill_size"] // copies)
    usual = found.get("schedule_conservativeness", 1.0)
    found["schedule_conservativeness"] = DP_CONSERVATIVENESS * usual


# Arguments that change memory or scheduling where they are set, and that kvsim does not simulate.
LEFT_OUT = (
    *("speculative_algorithm", "lora_paths"),
    *("enable_lora", "enable_two_batch_overlap", "cpu_offload_gb"),
)


# Arguments that do nothing while another is off, by what stands in their names.
_ONLY_WITH = {
    "speculative_": "speculative_algorithm",
    "lora": "enable_lora",
    "eplb_": "enable_eplb",
    "hicache_": "enable_hierarchical_cache",
    "disaggregation_": "disaggregation_mode",
    "torch_compile_": "enable_torch_compile",
    "offload_": "cpu_offload_gb",
    "kt_": "kt_weight_path",
}


def unread_arguments(names: Sequence[str]) -> list[str]:
    """Unread arguments among those that a server prints with a value, without arguments of disabled
    features.
    """
    return [
        name
        for name in names
        if name not in KNOWN
        and name not in LEFT_OUT
        and all(switch in names for part, switch in _ONLY_WITH.items() if part in name)
    ]


def left_out_notes(pairs: dict[str, Any]) -> list[str]:
    """Notes on arguments for features that are not simulated, or that the model's
    config decides.
    """
    policy = pairs.get("schedule_policy", POLICIES[0])
    notes = quantization_notes(pairs)
    if policy not in POLICIES:
        notes.append(f"schedule_policy {policy} is not one that kvsim has: it uses fcfs")
    off = (*UNSAID, "null", False, "False", "0", 0)
    asked = [f"{name}={pairs[name]}" for name in LEFT_OUT if pairs.get(name) not in off]
    return [*notes, f"not simulated: {', '.join(asked)}"] if asked else notes
