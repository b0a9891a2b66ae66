"""The command line of `vllm serve` for a setting."""

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


def command(table: dict[str, Any], folder: Path) -> str:
    """The flags that set what the tables hold; what no flag sets follows as comments."""
    return command_of(Simulation(Scenario.from_table(table, folder), []), table)


def command_of(simulation: Simulation, table: dict[str, Any]) -> str:
    """The same for a simulation that these tables have made."""
    tables = simulation.resolved()
    model = tables["model"]
    flags = [*(" ".join(each) for each in parallel_flags(model)), *_pool(simulation)]
    memory, allocator, scheduler = tables["memory"], tables["allocator"][0], tables["scheduler"]
    told = option_flags(model, memory, allocator, allocator.get("scheduler", scheduler))
    flags += together((*told, *drafting_flags(tables.get("speculative_config"))))
    comments = []
    for knob in KNOBS:
        part, *rest = knob.key.split(".")
        value = knob.now(tables)
        if value is None or knob.key in TOLD:
            continue
        if knob.flag is not None:
            flags.append(knob.flag(value))
        elif rest and rest[-1] in _as_given(table, part):
            comments.append(f"# no flag sets {knob.key} = {value_text(value)}")
    name = str(Path(model["hf_config"]).parent) if "hf_config" in model else hub_id(model["name"])
    program = " ".join((*environment(model, memory), "vllm serve", name))
    return written(program, flags, comments)


def _pool(simulation: Simulation) -> list[str]:
    """How the pool is sized."""
    memory, pool = simulation.scenario.memory, simulation.pool
    if pool.sized_by == "gpu_memory_utilization":
        return [f"--gpu-memory-utilization {memory.utilization:g}"]
    if pool.sized_by == "kv_cache_bytes":
        return [f"--kv-cache-memory-bytes {pool.capacity_bytes}"]
    return [f"--num-gpu-blocks-override {pool.num_gpu_blocks}"]


def _as_given(table: dict[str, Any], part: str) -> dict[str, Any]:
    """The part's table as the user gave it."""
    place = table.get(part) or {}
    if isinstance(place, list):
        place = place[0]
    return place if isinstance(place, dict) else {}
