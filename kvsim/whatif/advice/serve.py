"""The command line of `vllm serve` for a setting.

It has the flags of what the scenario says and vLLM would not do by itself. What the scenario
leaves to kvsim's own defaults has no flag; where vLLM's default is another, a comment says so.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.vllm.parallel import parallel_flags
from kvsim.vllm.serve_flags import drafting_flags, environment, option_flags
from kvsim.whatif.advice.change import value_text
from kvsim.whatif.advice.knobs import KNOBS
from kvsim.whatif.servers.flags import hub_id, together, written

# Keys whose flags stand in the command already: of the pool, and of `option_flags`.
TOLD = ("memory.gpu_memory_utilization", "memory.max_loras", "scheduler.max_loras")
# What each version of vLLM that has these flags does without them.
_USUAL = {
    "model.kv_cache_dtype": "auto",
    "allocator.0.block_size": 16,
    "allocator.0.watermark": 0.0,
    "scheduler.enable_chunked_prefill": True,
    "scheduler.long_prefill_token_threshold": 0,
    "scheduler.scheduler_reserve_full_isl": True,
}

# Those, and switches whose default depends on the version: no flag where vLLM does it by itself.
_SILENT = (*_USUAL, "allocator.0.enable_prefix_caching", "scheduler.async_scheduling")


def command(table: dict[str, Any], folder: Path, before: dict[str, Any] | None = None) -> str:
    """The flags of `vllm serve` for these tables; settings without a flag are comments. before: the
    tables before a change; keys that differ always get a flag.
    """
    return command_of(Simulation(Scenario.from_table(table, folder), []), table, before)


def command_of(
    simulation: Simulation, table: dict[str, Any], before: dict[str, Any] | None = None
) -> str:
    """`command` for tables that were already made into a simulation."""
    tables = simulation.resolved()
    model = tables["model"]
    parallel = [
        each
        for each in parallel_flags(model)
        if each[1:] != ("1",) or "tensor_parallel_size" in table["model"]
    ]
    flags = [*map(" ".join, parallel), *_pool(simulation)]
    memory, allocator, scheduler = tables["memory"], tables["allocator"][0], tables["scheduler"]
    told = option_flags(model, memory, allocator, allocator.get("scheduler", scheduler))
    flags += together((*told, *drafting_flags(tables.get("speculative_config"))))
    comments = []
    usual = _usual(simulation)
    for knob in KNOBS:
        part, *rest = knob.key.split(".")
        value = knob.now(tables)
        given = rest[-1] in _as_given(table, part) if rest else bool(table.get(part))
        if value is None or knob.key in TOLD or not given:
            continue
        same = before is None or not rest or _given(before, knob.key) == _given(table, knob.key)
        if same and knob.key in _SILENT and value == usual[knob.key]:
            continue
        if knob.flag is not None:
            flags.append(knob.flag(value))
        else:
            comments.append(f"# no flag sets {knob.key} = {value_text(value)}")
    comments += _not_given(tables, table, usual)
    name = str(Path(model["hf_config"]).parent) if "hf_config" in model else hub_id(model["name"])
    program = " ".join((*environment(model, memory), "vllm serve", name))
    return written(program, flags, comments)


def _usual(simulation: Simulation) -> dict[str, Any]:
    """The default values of vLLM's flags, by the version that the scenario names."""
    scenario = simulation.scenario
    engine = scenario.memory.version.sizing
    device = scenario.device.build()
    seqs, tokens = engine.default_limits(device.memory_bytes, device.name)
    return _USUAL | {
        "allocator.0.enable_prefix_caching": engine.caches_prefixes,
        "scheduler.async_scheduling": engine.schedules_ahead,
        "scheduler.max_num_seqs": seqs,
        "scheduler.max_num_batched_tokens": tokens,
    }


def _not_given(tables: dict[str, Any], table: dict[str, Any], usual: Any) -> Iterator[str]:
    """A comment on keys that the scenario leaves to kvsim's defaults, if vLLM's defaults differ."""
    found = []
    for knob in KNOBS:
        part, *rest = knob.key.split(".")
        if knob.key not in usual or rest[-1] in _as_given(table, part):
            continue
        value = knob.now(tables)
        if value is not None and value != usual[knob.key]:
            found.append(f"{knob.key} = {value_text(value)} (vLLM {value_text(usual[knob.key])})")
    if found:
        yield f"# the scenario leaves out, and kvsim's default is: {', '.join(found)}"


def _pool(simulation: Simulation) -> list[str]:
    """The flags that size the pool; none if the scenario leaves the size to the engine."""
    memory, pool = simulation.scenario.memory, simulation.pool
    if pool.sized_by == "gpu_memory_utilization":
        if memory.gpu_memory_utilization is None:
            return []
        return [f"--gpu-memory-utilization {memory.utilization:g}"]
    if pool.sized_by == "kv_cache_bytes":
        return [f"--kv-cache-memory-bytes {pool.capacity_bytes}"]
    return [f"--num-gpu-blocks-override {pool.num_gpu_blocks}"]


def _given(table: dict[str, Any], key: str) -> Any:
    return _as_given(table, key.split(".")[0]).get(key.rpartition(".")[2])


def _as_given(table: dict[str, Any], part: str) -> dict[str, Any]:
    """The part's table as the user gave it."""
    place = table.get(part) or {}
    if isinstance(place, list):
        place = place[0]
    return place if isinstance(place, dict) else {}
