"""Export a scenario as a `vllm serve` command line that starts a server like the simulated one.

Settings that vLLM does not have are refused. Settings without a flag (figures, times, properties of
the checkpoint) are listed in comments below the command.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from kvsim.capacity.options import MemoryOptions
from kvsim.engine.schedulers import SCHEDULERS
from kvsim.interchange.exports.export import ServerExport
from kvsim.interchange.served import ServedScenario
from kvsim.interchange.vllm_tiers import flags_of, without_flag_of
from kvsim.model.catalogue import first_id
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.support.parts import ServerParts
from kvsim.support.table import check
from kvsim.vllm.parallel import parallel_flags
from kvsim.vllm.serve_flags import (
    drafter_missing,
    drafting_flags,
    environment,
    option_flags,
    without_flag,
)
from kvsim.vllm.versions import NEWEST

_SCHEDULER = {
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "long_prefill_token_threshold": "--long-prefill-token-threshold",
}
_SWITCHES = {
    "enable_chunked_prefill": "enable-chunked-prefill",
    "async_scheduling": "async-scheduling",
    "scheduler_reserve_full_isl": "scheduler-reserve-full-isl",
}
# What vLLM does in one way: the value that says so.
_ITS_OWN = {
    "victim": "latest",
    "preemption_mode": "recompute",
    "sharing": "cache",
    "eviction_policy": "lru",
}
_KV_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class VllmServe(ServerExport):
    """`vllm serve MODEL --flags`, including the size of the KV pool."""

    what: ClassVar[str] = "a `vllm serve` command line"

    def server_files(self, server: ServedScenario) -> Iterator[tuple[str, Iterator[str]]]:
        _check(server)
        words = ["vllm", "serve", _model(server.scenario), *_flags(server)]
        yield "serve.sh", chain(_before(server), [_folded(words)], map(_comment, self.told(server)))

    def told(self, server: ServedScenario) -> list[str]:
        return list(_told(server))


def _model(tables: Mapping[str, Any]) -> str:
    """The model's Hugging Face id, or the folder of its config.json."""
    model = tables["model"]
    if "name" in model:
        return first_id(model["name"])
    config = Path(model["hf_config"])
    return str(config.parent if config.suffix == ".json" else config)


def _check(server: ServedScenario) -> None:
    """InputError for an allocator, scheduler or option value that vLLM does not have."""
    kind, tables = server.allocator["kind"], server.scenario
    if kind != "paged":
        allocators = tables["allocator"]
        paged = [each.get("label") or "paged" for each in allocators if each["kind"] == "paged"]
        remedy = f"--allocator {paged[0]!r} exports vLLM's" if paged else "vLLM's is 'paged'"
        raise InputError(
            "vLLM has no such allocator", where="[[allocator]]", value=kind, remedy=remedy
        )
    scheduler = server.scheduler
    if scheduler["kind"] != "continuous":
        raise InputError("vLLM has no such scheduler", where="[scheduler]", value=scheduler["kind"])
    for table, where in ((scheduler, "scheduler"), (server.allocator, "allocator")):
        for key, usual in _ITS_OWN.items():
            value = table.get(key)
            named = value.get("kind") if isinstance(value, Mapping) else value
            if named not in (None, usual):
                raise InputError("vLLM has no flag for it", where=f"{where}.{key}", value=named)
    if tables.get("disaggregation"):
        check(ServerParts(transfers="vllm", export="vllm-serve"))


def _before(server: ServedScenario) -> Iterator[str]:
    """Lines before the command: environment variables, and the order of GPUs of different types."""
    model, device = server.scenario["model"], server.scenario["device"]
    if others := device.get("stage"):
        per_stage = model.get("tensor_parallel_size", 1)
        usual = device["name"]
        yield f"# GPUs in the order of CUDA_VISIBLE_DEVICES, {per_stage} a stage: {usual}\n"
        for each in others:
            yield f"# but in stage {each['number']}: {each.get('name', usual)}\n"
    for variable in environment(model, server.scenario["memory"]):
        yield f"export {variable}\n"


def _comment(text: str) -> str:
    return f"# {text}\n"


def _told(server: ServedScenario) -> Iterator[str]:
    """Sentences on settings of this server that no flag can express."""
    tables, scheduler = server.scenario, server.scheduler
    schedules = str(scheduler.get("semantics", f"vllm-{NEWEST.name}")).removeprefix("vllm-")
    for key, version in (
        ("scheduler.semantics", schedules),
        ("memory.engine_version", tables["memory"].get("engine_version", NEWEST.name)),
    ):
        if version != NEWEST.name:
            yield f"the flags are of vLLM {NEWEST.name}, {key} is {version}"
    drafts = tables.get("speculative_config")
    if (missing := drafter_missing(drafts)) is not None:
        yield missing
    parts = {
        "model": (tables["model"], {}),
        "memory": (tables["memory"], _usual(MemoryOptions)),
        "allocator": (server.allocator, {}),
        "scheduler": (scheduler, _usual(SCHEDULERS.get(scheduler["kind"]))),
        "speculative_config": (drafts or {}, {}),
    }
    for name, (options, usual) in parts.items():
        for key, value in without_flag(name, options, usual):
            yield f"no flag sets {key} = {json.dumps(value)}"
    caches, planned = server.allocator.get("enable_prefix_caching", True), tables["memory"]
    if planned.get("enable_prefix_caching") not in (None, caches):
        yield f"no flag sets memory.enable_prefix_caching = {json.dumps(not caches)} beside it"
    for key, value in without_flag_of(tables.get("tier") or ()):
        yield f"no flag sets {key} = {json.dumps(value)}"


def _usual(options: type[Options]) -> dict[str, Any]:
    return {name: field.default for name, field in options.model_fields.items()}


def _flags(server: ServedScenario) -> Iterator[str]:
    tables, scheduler, options = server.scenario, server.scheduler, server.allocator
    model = tables["model"]
    yield from chain.from_iterable(parallel_flags(model))
    if model.get("max_model_len") is not None:
        yield from ("--max-model-len", str(model["max_model_len"]))
    if (kv := model.get("kv_cache_dtype")) not in (None, "auto"):
        yield from ("--kv-cache-dtype", _KV_DTYPES.get(str(kv), str(kv)))
    yield from _pool(server)
    yield from ("--block-size", str(options.get("block_size", 16)))
    yield _switch("enable-prefix-caching", bool(options.get("enable_prefix_caching", True)))
    if options.get("host_cache_gib") is not None:
        yield from ("--kv-offloading-size", str(options["host_cache_gib"]))
    yield from flags_of(tables.get("tier") or ())
    if options.get("watermark") is not None:
        yield from ("--watermark", str(options["watermark"]))
    retention = options.get("prefix_cache_retention_interval")
    if retention is not None:  # vLLM's null is written as a word
        value = "None" if retention == "none" else str(retention)
        yield from ("--prefix-cache-retention-interval", value)
    for key, flag in _SCHEDULER.items():
        if scheduler.get(key) is not None:
            yield from (flag, str(scheduler[key]))
    for key, name in _SWITCHES.items():
        if scheduler.get(key) is not None:
            yield _switch(name, scheduler[key])
    yield from option_flags(model, tables["memory"], options, scheduler)
    drafts = tables.get("speculative_config")
    if drafts and drafts.get("model"):
        drafts = {**drafts, "model": first_id(drafts["model"])}
    yield from drafting_flags(drafts)


def _pool(server: ServedScenario) -> Iterator[str]:
    """Flags for the size of the KV pool.

    The pool is given as a memory fraction or a number of blocks if the scenario has one of these,
    else in bytes. It is also given in bytes if all layers share one block table, since vLLM counts
    those blocks differently.
    """
    memory: Mapping[str, Any] = server.scenario["memory"]
    one_table = server.allocator.get("disable_hybrid_kv_cache_manager")
    if memory.get("gpu_memory_utilization") is not None:
        yield from ("--gpu-memory-utilization", str(memory["gpu_memory_utilization"]))
    elif memory.get("num_gpu_blocks") is not None and not one_table:
        yield from ("--num-gpu-blocks-override", str(memory["num_gpu_blocks"]))
    else:
        yield from ("--kv-cache-memory-bytes", str(server.capacity_bytes))


def _switch(name: str, on: bool) -> str:
    return f"--{name}" if on else f"--no-{name}"


def _folded(words: list[str]) -> str:
    """The command as a shell command with one flag per line."""
    lines, line = [], " ".join(shlex.quote(word) for word in words[:3])
    for word in words[3:]:
        if word.startswith("--"):
            lines.append(line)
            line = f"  {word}"
        else:
            line += f" {shlex.quote(word)}"
    return " \\\n".join([*lines, line]) + "\n"
