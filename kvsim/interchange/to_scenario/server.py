"""Convert settings to a simulated server: its model, device, KV pool and scheduler.

Missing settings get the engine's defaults (`kvsim.observed.vllm_defaults`), and are listed.
"""

import json
from dataclasses import dataclass
from typing import Any

from kvsim.capacity.sglang.versions import NEWEST as NEWEST_SGLANG
from kvsim.device import named_device
from kvsim.engine.connectors import TIERS
from kvsim.interchange.to_scenario.doubts import doubts_of
from kvsim.interchange.to_scenario.drafts import speculation_of
from kvsim.interchange.to_scenario.pool import pool_of
from kvsim.interchange.to_scenario.served import served_device, served_model
from kvsim.interchange.to_scenario.stages import is_newest, staged
from kvsim.interchange.to_scenario.unused import without_unused
from kvsim.interchange.vllm_tiers import tiers_of
from kvsim.observed.vllm_defaults import NEWEST, release
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.plumbing.units import MIB
from kvsim.readers.description import ServerSettings
from kvsim.support.parts import ServerParts
from kvsim.support.table import refusal_of
from kvsim.vllm.versions import newer_than_known

_NOT_BESIDE_DRAFTS = (
    "the host memory behind the device is left out: where tokens are drafted ahead, "
    "vllm-offloading or vllm-simple-offloading is simulated, alone and not by dflash (without "
    "[speculative_config], [[tier]] is)"
)
_V1 = (0, 8)
_TIERS_SINCE = (0, 12)  # schedules since then are replayed as those of 0.33, connectors too
# Defaults of other engines, by the names of meta.json.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "sglang": {"block_size": 1, "enable_prefix_caching": True},
    "tensorrt-llm": {
        "block_size": 32,
        "enable_prefix_caching": True,
        "max_num_seqs": 2048,
        "max_num_batched_tokens": 8192,
    },
    "llama.cpp": {"block_size": 1},
}
_SGLANG_RULES = "0.5.23"
_HICACHE = (
    *("enable_hierarchical_cache", "hicache_ratio", "hicache_size", "hicache_write_policy"),
    *("hicache_storage_backend", "hicache_storage_prefetch_policy"),
)
_SGLANG = (
    *("max_prefill_tokens", "schedule_policy", "schedule_conservativeness"),
    *("enable_mixed_chunk", "disable_overlap_schedule"),
)
_PRIORITIES = (
    *("enable_priority_scheduling", "schedule_low_priority_values_first"),
    *("priority_scheduling_preemption_threshold", "disable_priority_preemption"),
)
# Settings that a meta.json of vLLM's has by the same name.
_SLOTS = (
    *("n_parallel", "kv_unified", "n_batch", "slot_prompt_similarity", "context_shift"),
    *("cache_reuse", "cache_ram", "cache_idle_slots", "ctx_checkpoints"),
)
_META = (
    *("tensor_parallel_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len"),
    *("block_size", "enable_prefix_caching", "async_scheduling", "enable_chunked_prefill"),
    *("scheduler_reserve_full_isl", "long_prefill_token_threshold", "policy"),
    "watermark",
)


@dataclass(frozen=True, slots=True)
class DescribedServer:
    """A server that sources describe.

    model and memory are the tables [model] and [memory] of a scenario. device is a name in the
    catalogue. meta_table has the engine's settings as in meta.json of an observed run; meta adds
    the engine's defaults. speculation is the table [speculative_config], tiers the tables [[tier]].
    knows_model: kvsim knows the model's layers.

    assumed has a sentence for each setting that no source gives. notes are further sentences for
    readers of the scenario.
    """

    settings: ServerSettings
    model: dict[str, Any]
    device: str
    memory: dict[str, Any]
    meta_table: dict[str, Any]
    meta: VllmMeta
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    speculation: dict[str, Any] | None = None
    tiers: tuple[dict[str, Any], ...] = ()
    knows_model: bool = False

    def scenario(self, workload: dict[str, Any] | None, seed: int = 0) -> dict[str, Any]:
        """The tables of a scenario with this server. workload is the table [workload]; None: leave
        it out.
        """
        return {
            "seed": seed,
            "model": self.model,
            "device": {"name": self.device},
            "memory": self.memory,
            "allocator": [self.allocator()],
            "scheduler": self.scheduler(),
            "step_time": self.step_time(),
            **({} if self.speculation is None else {"speculative_config": self.speculation}),
            **({"tier": list(self.tiers)} if self.tiers else {}),
            **({} if workload is None else {"workload": workload}),
        }

    def step_time(self) -> dict[str, Any]:
        """The table [step_time], with settings that belong in no other table: SGLang's version,
        eager mode, and tuned kernels.
        """
        settings, table = self.settings, dict[str, Any](kind="auto")
        if settings.engine == "sglang":
            if settings.engine_version is not None:
                table["engine_version"] = settings.engine_version
            if settings.enforce_eager:
                table["enforce_eager"] = True
        if settings.tuned:
            table["tuned"] = True
        return table

    def scheduler(self) -> dict[str, Any]:
        """The table [scheduler], of the engine's own kind."""
        meta, engine = self.meta, self.settings.engine or "vllm"
        limits = {
            "max_num_seqs": meta.max_num_seqs,
            "max_num_batched_tokens": meta.max_num_batched_tokens,
        }
        if engine == "sglang":
            return self._sglang_scheduler()
        if engine == "llama.cpp":
            known = self.settings.reported()
            return {"kind": "llama-server"} | {key: known[key] for key in _SLOTS if key in known}
        if engine == "tensorrt-llm":
            policy = self.settings.capacity_policy or "guaranteed-no-evict"
            return {"kind": "trt-llm", "capacity_scheduler_policy": policy} | limits
        if engine == "vllm" and release(meta.vllm_version) < _V1:
            return {"kind": "vllm-v0"} | limits
        table = {"kind": "continuous"} | meta.scheduler_options().model_dump(exclude_unset=True)
        return table | self._special()

    def _special(self) -> dict[str, Any]:
        """Keys of [scheduler] for multimodal inputs and LoRA adapters, if the sources have them."""
        known = self.settings.reported()
        keys = ["disable_chunked_mm_input", "limit_mm_per_prompt"]
        table: dict[str, Any] = {}
        if self.settings.enable_lora:
            keys.append("max_cpu_loras")
            table["max_loras"] = self.settings.max_loras or 1
        return table | {key: known[key] for key in keys if key in known}

    def _sglang_scheduler(self) -> dict[str, Any]:
        known = self.settings.reported()
        table = {"kind": "sglang"} | {key: known[key] for key in _SGLANG if key in known}
        if known.get("enable_priority_scheduling"):
            off = {"priority_scheduling_preemption_threshold"}
            unused = off if known.get("disable_priority_preemption") else set()
            table |= {key: known[key] for key in _PRIORITIES if key in known and key not in unused}
        if "max_num_seqs" in known:
            table["max_running_requests"] = known["max_num_seqs"]
        if "pipeline_parallel_size" in self.model and "pp_max_micro_batch_size" in known:
            table["pp_max_micro_batch_size"] = known["pp_max_micro_batch_size"]
        usual = _sglang_chunk(self.device, known)
        return table | {"chunked_prefill_size": known.get("chunked_prefill_size", usual)}

    @property
    def _evicts_to_host(self) -> bool:
        """Whether evicted blocks go to host memory by the allocator's host_cache_gib, since no KV
        tier is simulated.
        """
        return self.meta.enable_prefix_caching and not self.tiers

    def _hicache(self) -> dict[str, Any]:
        """Options of SGLang's hierarchical cache, from its flags.

        hicache_ratio is left out if hicache_size is given, since it then has no effect. Without the
        cache there are no options.
        """
        known = self.settings.reported()
        if not (known.get("enable_hierarchical_cache") and self.meta.enable_prefix_caching):
            return {}
        unused = {"hicache_ratio"} if "hicache_size" in known else set()
        if "hicache_storage_backend" not in known:
            unused.add("hicache_storage_prefetch_policy")
        return {key: known[key] for key in _HICACHE if key in known and key not in unused}

    def allocator(self) -> dict[str, Any]:
        """The [[allocator]] table, of the engine's own kind."""
        settings = self.settings
        if settings.engine == "sglang":
            return {
                "kind": "radix",
                "page_size": self.meta.block_size,
                "disable_radix_cache": not self.meta.enable_prefix_caching,
                **self._hicache(),
            }
        if settings.engine == "llama.cpp":
            given = {key: getattr(settings, key) for key in ("n_ubatch", "swa_full")}
            return {"kind": "cells"} | {k: value for k, value in given.items() if value is not None}
        table: dict[str, Any] = {
            "kind": "paged",
            "block_size": self.meta.block_size,
            "enable_prefix_caching": self.meta.enable_prefix_caching,
        }
        if settings.host_cache_gib is not None and self._evicts_to_host:
            table["host_cache_gib"] = settings.host_cache_gib
        if settings.disable_hybrid_kv_cache_manager:
            table["disable_hybrid_kv_cache_manager"] = True
        for key in ("watermark", "prefix_cache_retention_interval", "prefix_match_unit"):
            value = getattr(settings, key)
            if value:
                table[key] = value
        return table


def server_of(settings: ServerSettings) -> DescribedServer:
    """The server for these settings; InputError if no source gives the model or the device."""
    assumed: list[str] = []
    notes: list[str] = []
    device = served_device(settings, assumed)
    served = served_model(settings, assumed)
    settings, served = without_unused(settings, served, notes)
    model, known = served.table, settings.reported()
    meta_table: dict[str, Any] = {name: known[name] for name in _META if name in known}
    if "max_model_len" in model:
        meta_table["max_model_len"] = model["max_model_len"]
    engine = settings.engine or "vllm"
    if engine == "vllm" and settings.engine_version is not None:
        meta_table["vllm_version"] = settings.engine_version
    elif engine != "vllm":
        meta_table = _DEFAULTS[engine] | meta_table
        meta_table["vllm_version"] = NEWEST  # its rules stand for those of another engine
    meta_table |= {"model": str(model.get("name", model.get("hf_config"))), "gpu": device}
    drafts = speculation_of(settings, assumed, notes)
    looks_up = drafts is not None and drafts["method"] == "ngram" and not is_newest(meta_table)
    if looks_up and "async_scheduling" not in meta_table:
        meta_table["async_scheduling"] = False
        assumed.append(
            "async_scheduling = false: vLLM before 0.33 leaves it off where ngram drafts"
        )
    stages = staged(settings, served, meta_table, assumed, drafts)
    pool = pool_of(settings, served, device, VllmMeta.parse(meta_table, "import"), notes)
    meta_table["num_gpu_blocks"] = pool.blocks
    notes += doubts_of(settings, served, device)
    if pool.blocks is not None and "num_gpu_blocks" not in pool.memory:
        notes.append("the observed run has the same bytes of KV, with all layers as one kind")
    meta = VllmMeta.parse(meta_table, "import")
    if engine == "vllm":
        assumed.extend(line for line in meta.assumptions if not line.startswith("num_gpu_blocks"))
        notes += [newer] if (newer := newer_than_known(meta.vllm_version)) else []
    else:
        assumed.extend(_defaults_of(engine, known, device))
        assumed.extend(_other_version(engine, settings.engine_version))
    table = model | {"max_model_len": meta.max_model_len} | stages
    tiers: list[dict[str, Any]] = []
    if engine == "vllm" and release(meta.vllm_version) >= _TIERS_SINCE:
        tiers, unread = tiers_of(settings.host_cache_gib, settings.kv_transfer_config)
        notes += unread
        if drafts is not None and tiers and not _beside_drafts(drafts, tiers):
            notes.append(_NOT_BESIDE_DRAFTS)
            tiers = []
        speeds = settings.model_dump(include={"store_gb_per_s", "load_gb_per_s"}, exclude_none=True)
        tiers[:1] = [host | speeds for host in tiers[:1]]
    return DescribedServer(
        settings,
        table,
        device,
        pool.memory,
        meta_table,
        meta,
        tuple(assumed),
        tuple(notes),
        drafts,
        tuple(tiers),
        served.model is not None,
    )


def _sglang_chunk(device: str, known: dict[str, Any]) -> int:
    """SGLang's default chunk size in tokens, divided among data-parallel attention ranks."""
    copies: int = known.get("attention_dp_size", 1)
    return NEWEST_SGLANG.tier_of(named_device(device).memory_bytes / MIB).chunk // copies


def _defaults_of(engine: str, known: dict[str, Any], device: str) -> list[str]:
    """Sentences on default values for engines other than vLLM, for keys that no source has.

    Empty for llama.cpp: its keys keep the defaults of kind = "llama-server".
    """
    if engine == "llama.cpp":
        return []
    name = {"sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}[engine]
    values = dict(_DEFAULTS[engine])
    if engine == "sglang":
        values["chunked_prefill_size"] = _sglang_chunk(device, known)
    lines = [
        f"{key} = {json.dumps(value)}: {name}'s default"
        for key, value in values.items()
        if key not in known
    ]
    if engine == "sglang":
        if "max_num_seqs" not in known:
            lines.append("max_running_requests: SGLang's default, which depends on the pool")
        return lines
    return [*lines, "kvsim simulates TensorRT-LLM's memory by its own paged one"]


def _other_version(engine: str, version: str | None) -> list[str]:
    """A note if the engine's version is another than the only one that kvsim implements."""
    if version is None or (engine == "sglang" and version.startswith(_SGLANG_RULES)):
        return []
    if engine == "sglang":
        return [
            f"engine_version = {version} counts for the times of steps: the rules are SGLang "
            f"{_SGLANG_RULES}'s"
        ]
    return [f"engine_version = {version} changes nothing: the rules are those of one version"]


def _beside_drafts(drafts: dict[str, Any], tiers: list[dict[str, Any]]) -> bool:
    """Whether these tiers can be simulated together with speculative decoding."""
    kinds = tuple(tier["kind"] for tier in tiers)
    serves = frozenset.intersection(*(TIERS.get(kind).serves for kind in kinds))
    one_pass = drafts["method"] == "dflash"
    parts = ServerParts(drafts=True, one_pass=one_pass, tiers=kinds, serves=serves)
    return refusal_of(parts) is None
