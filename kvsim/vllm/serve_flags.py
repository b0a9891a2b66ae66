"""Options of a scenario as arguments of `vllm serve` (vLLM 0.33.0, engine/arg_utils.py), and those
that it has no argument for. Flags of tensor, pipeline and data parallelism are in parallel.py.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvsim.vllm.parallel import stage_environment

Table = Mapping[str, Any]
_DRAFTS = ("method", "num_speculative_tokens", "model", "disable_lookahead_block_hashes")
_NEED_MODEL = ("eagle", "eagle3")  # a run needs none: its head is one layer of the target
# By table, the keys that say what was measured, what the model or its kernels are, or what is
# stated of time and acceptance: no argument sets them.
UNSET: dict[str, tuple[str, ...]] = {
    "model": ("quantization", "weight_bytes_per_param", "kv_scale_group_size", "kv_scale_bytes"),
    "memory": (
        "weights_gib",
        "activation_gib",
        "other_gib",
        "drafter",
        "num_speculative_tokens",
        "first_start",
    ),
    "allocator": ("prefill_checkpoint_alignment",),
    "scheduler": (
        *("max_tokens_per_mm_item", "max_num_encoder_input_tokens", "encoder_cache_size"),
        *("encoder_us_per_token", "lora_load_ms"),
    ),
    "speculative_config": (
        *("acceptance_rate", "synthetic_acceptance_rates", "synthetic_acceptance_length"),
        *("acceptance_pattern", "draft_us"),
    ),
}


def option_flags(model: Table, memory: Table, allocator: Table, scheduler: Table) -> Iterator[str]:
    """Arguments of the model's numbers, of CUDA graphs, adapters, images and the order of the
    queue, for what is not vLLM's default.
    """
    for key in ("dtype", "mamba_ssm_cache_dtype"):
        if model.get(key) not in (None, "auto"):
            yield from (_named(key), _TYPES.get(str(model[key]), str(model[key])))
    if model.get("language_model_only"):
        yield "--language-model-only"
    if model.get("quantization") == "fp8":
        yield from ("--quantization", "fp8")
    if memory.get("enforce_eager"):
        yield "--enforce-eager"
    if memory.get("max_cudagraph_capture_size") is not None:
        yield from ("--max-cudagraph-capture-size", str(memory["max_cudagraph_capture_size"]))
    if allocator.get("disable_hybrid_kv_cache_manager"):
        yield "--disable-hybrid-kv-cache-manager"
    if allocator.get("prefix_match_unit") is not None:
        yield from ("--prefix-match-unit", str(allocator["prefix_match_unit"]))
    if scheduler.get("policy", "fcfs") != "fcfs":
        yield from ("--scheduling-policy", str(scheduler["policy"]))
    if scheduler.get("disable_chunked_mm_input"):
        yield "--disable-chunked-mm-input"
    if scheduler.get("limit_mm_per_prompt") is not None:
        images = json.dumps({"image": scheduler["limit_mm_per_prompt"]})
        yield from ("--limit-mm-per-prompt", images)
    yield from adapter_flags(memory, scheduler)


def adapter_flags(memory: Table, scheduler: Table) -> Iterator[str]:
    """Arguments of LoRA adapters; none where none are served."""
    loras = memory.get("max_loras") or scheduler.get("max_loras")
    if not loras:
        return
    yield from ("--enable-lora", "--max-loras", str(loras))
    if memory.get("max_loras") and memory.get("max_lora_rank", _USUAL_RANK) != _USUAL_RANK:
        yield from ("--max-lora-rank", str(memory["max_lora_rank"]))
    if scheduler.get("max_cpu_loras") is not None:
        yield from ("--max-cpu-loras", str(scheduler["max_cpu_loras"]))


def drafting_flags(config: Table | None) -> Iterator[str]:
    """The argument of tokens that are drafted ahead; nothing where none are. config: with the
    drafter's id as `model`.
    """
    if config:
        told = {key: config[key] for key in _DRAFTS if config.get(key)}
        if config.get("hf_config"):
            told["model"] = str(Path(config["hf_config"]).parent)
        yield from ("--speculative-config", json.dumps(told))


def environment(model: Table, memory: Table) -> list[str]:
    """Environment variables of vLLM: the layers of each stage, and the sampler."""
    found = [each for each in (stage_environment(model),) if each]
    if memory.get("flashinfer_sampler") is not None:
        found.append(f"VLLM_USE_FLASHINFER_SAMPLER={int(memory['flashinfer_sampler'])}")
    return found


def without_flag(table: str, options: Table, usual: Table) -> Iterator[tuple[str, Any]]:
    """Keys that no `vllm serve` argument sets, with values that differ from those in `usual`."""
    for key in UNSET[table]:
        value = options.get(key)
        if key == "quantization" and value in ("fp8", "none"):
            continue
        if value is not None and value != usual.get(key):
            yield f"{table}.{key}", value


def drafter_missing(config: Table | None) -> str | None:
    """The flag a server still needs: a head of its own, if the scenario names none."""
    if config is None or config.get("model") or config.get("hf_config"):
        return None
    if config["method"] not in _NEED_MODEL:
        return None
    return f'vLLM needs the {config["method"]} head: add its id as "model" to --speculative-config'


_USUAL_RANK = 16
_TYPES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32"}


def _named(key: str) -> str:
    return f"--{key.replace('_', '-')}"
