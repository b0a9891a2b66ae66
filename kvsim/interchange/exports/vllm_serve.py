"""The scenario as a command line of vLLM: what to start for a server like the simulated one.

What vLLM has no flag for is refused, not left out.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, ClassVar

from kvsim.interchange.exports.export import Export, Exported
from kvsim.interchange.vllm_tiers import flags_of
from kvsim.plumbing.errors import InputError
from kvsim.vllm.parallel import parallel_flags, stage_environment

_SCHEDULER = {
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "long_prefill_token_threshold": "--long-prefill-token-threshold",
    "policy": "--scheduling-policy",
    "max_loras": "--max-loras",
    "max_cpu_loras": "--max-cpu-loras",
}
_SWITCHES = {
    "enable_chunked_prefill": "enable-chunked-prefill",
    "async_scheduling": "async-scheduling",
    "scheduler_reserve_full_isl": "scheduler-reserve-full-isl",
}
_MODEL = {
    "max_model_len": "--max-model-len",
    "dtype": "--dtype",
    "kv_cache_dtype": "--kv-cache-dtype",
}
# What vLLM does in one way: the value that says so.
_ITS_OWN = {"victim": "latest", "preemption_mode": "recompute", "sharing": "cache"}
_SPECULATION = ("method", "num_speculative_tokens", "model", "disable_lookahead_block_hashes")
_KV_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class VllmServe(Export):
    """`vllm serve MODEL --flags`, the pool included."""

    what: ClassVar[str] = "a `vllm serve` command line"

    def files(self, exported: Exported) -> Iterator[tuple[str, Iterator[str]]]:
        _check(exported)
        words = ["vllm", "serve", exported.model, *_flags(exported)]
        yield "serve.sh", chain(_before(exported), [_folded(words)])


def _check(exported: Exported) -> None:
    """Refuse what vLLM is not."""
    kind = exported.run.kind
    if kind != "paged":
        allocators = exported.scenario["allocator"]
        paged = [each.get("label") or "paged" for each in allocators if each["kind"] == "paged"]
        remedy = f"--allocator {paged[0]!r} exports vLLM's" if paged else "vLLM's is 'paged'"
        raise InputError(
            "vLLM has no such allocator", where="[[allocator]]", value=kind, remedy=remedy
        )
    scheduler = exported.scenario["scheduler"]
    if scheduler["kind"] != "continuous":
        raise InputError("vLLM has no such scheduler", where="[scheduler]", value=scheduler["kind"])
    for table, where in ((scheduler, "scheduler"), (exported.allocator, "allocator")):
        for key, usual in _ITS_OWN.items():
            value = table.get(key)
            named = value.get("kind") if isinstance(value, Mapping) else value
            if named not in (None, usual):
                raise InputError("vLLM has no flag for it", where=f"{where}.{key}", value=named)


def _before(exported: Exported) -> Iterator[str]:
    """What vLLM takes from the environment: how the layers are dealt out to stages, and the order
    of unlike GPUs.
    """
    model, device = exported.scenario["model"], exported.scenario["device"]
    if others := device.get("stage"):
        per_stage = model.get("tensor_parallel_size", 1)
        usual = device["name"]
        yield f"# GPUs in the order of CUDA_VISIBLE_DEVICES, {per_stage} a stage: {usual}\n"
        for each in others:
            yield f"# but in stage {each['number']}: {each.get('name', usual)}\n"
    if layers := stage_environment(model):
        yield f"export {layers}\n"


def _flags(exported: Exported) -> Iterator[str]:
    model, scheduler = exported.scenario["model"], exported.scenario["scheduler"]
    yield from chain.from_iterable(parallel_flags(model))
    for key, flag in _MODEL.items():
        value = model.get(key)
        if value not in (None, "auto"):
            yield from (flag, _KV_DTYPES.get(str(value), str(value)))
    if model.get("quantization") == "fp8":
        yield from ("--quantization", "fp8")
    yield from _pool(exported)
    options = exported.allocator
    yield from ("--block-size", str(options.get("block_size", 16)))
    yield _switch("enable-prefix-caching", bool(options.get("enable_prefix_caching", True)))
    if options.get("host_cache_gib") is not None:
        yield from ("--kv-offloading-size", str(options["host_cache_gib"]))
    yield from flags_of(exported.scenario.get("tier") or ())
    if options.get("disable_hybrid_kv_cache_manager"):
        yield "--disable-hybrid-kv-cache-manager"
    if options.get("watermark") is not None:
        yield from ("--watermark", str(options["watermark"]))
    retention = options.get("prefix_cache_retention_interval")
    if retention is not None:  # vLLM's null is written as a word
        value = "None" if retention == "none" else str(retention)
        yield from ("--prefix-cache-retention-interval", value)
    for key, flag in _SCHEDULER.items():
        if scheduler.get(key) is not None:
            yield from (flag, str(scheduler[key]))
    if scheduler.get("max_loras"):
        yield "--enable-lora"
    if scheduler.get("disable_chunked_mm_input"):
        yield "--disable-chunked-mm-input"
    if scheduler.get("limit_mm_per_prompt") is not None:
        yield from (
            "--limit-mm-per-prompt",
            json.dumps({"image": scheduler["limit_mm_per_prompt"]}),
        )
    for key, name in _SWITCHES.items():
        if scheduler.get(key) is not None:
            yield _switch(name, scheduler[key])
    drafting = exported.scenario.get("speculative_config")
    if drafting:
        config = {key: drafting[key] for key in _SPECULATION if drafting.get(key)}
        yield from ("--speculative-config", json.dumps(config))


def _pool(exported: Exported) -> Iterator[str]:
    """As the scenario gives it; what it gives in tokens as bytes, and blocks too where the layers
    share one table, which vLLM would count otherwise.
    """
    memory: Mapping[str, Any] = exported.scenario["memory"]
    one_table = exported.allocator.get("disable_hybrid_kv_cache_manager")
    if memory.get("gpu_memory_utilization") is not None:
        yield from ("--gpu-memory-utilization", str(memory["gpu_memory_utilization"]))
    elif memory.get("num_gpu_blocks") is not None and not one_table:
        yield from ("--num-gpu-blocks-override", str(memory["num_gpu_blocks"]))
    else:
        capacity = exported.run.summary.memory.capacity_bytes
        yield from ("--kv-cache-memory-bytes", str(capacity))
    if memory.get("enforce_eager"):
        yield "--enforce-eager"


def _switch(name: str, on: bool) -> str:
    return f"--{name}" if on else f"--no-{name}"


def _folded(words: list[str]) -> str:
    """A line a flag."""
    lines, line = [], " ".join(shlex.quote(word) for word in words[:3])
    for word in words[3:]:
        if word.startswith("--"):
            lines.append(line)
            line = f"  {word}"
        else:
            line += f" {shlex.quote(word)}"
    return " \\\n".join([*lines, line]) + "\n"
