"""The command line of SGLang for a scenario."""

from pathlib import Path
from typing import Any

from kvsim.memory.options import AllocatorOptions
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.plumbing.options import Options
from kvsim.readers.sglang.args import DP_CONSERVATIVENESS
from kvsim.simulation import Simulation
from kvsim.whatif.servers.flags import flags, hub_id, written

_NAMED = (
    *("max_running_requests", "max_prefill_tokens", "prefill_max_requests"),
    *("chunked_prefill_size", "schedule_policy", "schedule_conservativeness"),
    *("enable_mixed_chunk", "disable_overlap_schedule", "scheduler_recv_interval"),
    *("enable_priority_scheduling", "schedule_low_priority_values_first"),
    *("priority_scheduling_preemption_threshold", "disable_priority_preemption"),
    "pp_max_micro_batch_size",
)
_POOLS = (
    *("page_size", "disable_radix_cache", "swa_full_tokens_ratio", "max_mamba_cache_size"),
    *("mamba_radix_cache_strategy", "mamba_track_interval", "enable_hierarchical_cache"),
    *("hicache_ratio", "hicache_size", "hicache_write_policy", "hicache_storage_backend"),
    "hicache_storage_prefetch_policy",
)
_SHARED = ("chunked_prefill_size", "max_running_requests")
_MODEL = {
    "tensor_parallel_size": "tp-size",
    "pipeline_parallel_size": "pp-size",
    "data_parallel_size": "dp-size",
    "max_model_len": "context-length",
    "kv_cache_dtype": "kv-cache-dtype",
}


def command_of(
    simulation: Simulation, tables: dict[str, Any], before: dict[str, Any] | None = None
) -> str:
    """`python -m sglang.launch_server --model-path MODEL --flags`: the flags that size the pool,
    and the options that are not at their defaults.
    """
    scenario, model = simulation.scenario, tables["model"]
    allocator, memory = scenario.allocator[0], scenario.memory
    copies = model.get("data_parallel_size", 1)
    scheduler: Options = scenario.scheduler_of(allocator)
    if copies > 1:
        scheduler, model = _of_whole_server(scheduler, copies), _whole_model(model, copies)
    own, left = flags(scheduler, _flags_of(_NAMED), "scheduler")
    pools, beside = flags(allocator, _flags_of(_POOLS), "allocator.0")
    path = str(Path(model["hf_config"]).parent) if "hf_config" in model else hub_id(model["name"])
    given = [f"--{flag} {model[key]}" for key, flag in _MODEL.items() if model.get(key) is not None]
    if memory.mem_fraction_static not in (None, "auto"):
        given.append(f"--mem-fraction-static {memory.mem_fraction_static:g}")
    tokens = memory.kv_cache_tokens
    if tokens is None and memory.mem_fraction_static is None:
        tokens = _tokens_of(simulation, allocator)
    if tokens is not None:
        given.append(f"--max-total-tokens {tokens}")
    if memory.mamba_full_memory_ratio is not None:
        given.append(f"--mamba-full-memory-ratio {memory.mamba_full_memory_ratio:g}")
    if copies > 1:
        given.append("--enable-dp-attention")
    if model.get("enable_expert_parallel"):
        given.append(f"--ep-size {model.get('tensor_parallel_size', 1)}")
    if model.get("language_model_only"):
        left.append("# no flag sets model.language_model_only = true")
    arguments = [f"--model-path {path}", *given, *own, *pools]
    return written("python -m sglang.launch_server", arguments, [*left, *beside])


def _tokens_of(simulation: Simulation, options: AllocatorOptions) -> int:
    """Tokens that fit into the scenario's pool under this allocator."""
    allocator = simulation.replica_spec(options).build().allocator
    if isinstance(allocator, RadixAllocator):
        return allocator.pool_tokens
    return simulation.pool.capacity_bytes // simulation.layout.bytes_per_token


def _whole_model(model: dict[str, Any], copies: int) -> dict[str, Any]:
    """The [model] table with tensor_parallel_size multiplied by the data-parallel attention copies,
    as --tp-size counts all GPUs.
    """
    return model | {"tensor_parallel_size": copies * model.get("tensor_parallel_size", 1)}


def _of_whole_server(scheduler: Options, copies: int) -> Options:
    """Scheduler options of the whole server from those of one data-parallel attention copy: limits
    that SGLang divides among copies are multiplied.
    """
    own = scheduler.model_dump()
    whole = {name: copies * own[name] for name in _SHARED if (own[name] or -1) > 0}
    usual = round(own["schedule_conservativeness"] / DP_CONSERVATIVENESS, 6)
    return scheduler.model_copy(update=whole | {"schedule_conservativeness": usual})


def _flags_of(options: tuple[str, ...]) -> dict[str, str]:
    """Flags named like their options: `chunked_prefill_size` -> `chunked-prefill-size`."""
    return {name: name.replace("_", "-") for name in options}
