"""The command line of `vllm serve` for a setting."""

import re
from pathlib import Path
from typing import Any

from kvsim.model.catalogue import named_model
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.advice.change import value_text
from kvsim.whatif.advice.knobs import KNOBS


def command(table: dict[str, Any], folder: Path) -> str:
    """The flags that set what the tables hold; what no flag sets follows as comments."""
    simulation = Simulation(Scenario.from_table(table, folder), [])
    tables = simulation.resolved()
    model = tables["model"]
    flags = [f"--tensor-parallel-size {model['tensor_parallel_size']}", *_pool(simulation)]
    comments = []
    for knob in KNOBS:
        part, *rest = knob.key.split(".")
        value = knob.now(tables)
        if value is None or knob.key == "memory.gpu_memory_utilization":
            continue
        if knob.flag is not None:
            flags.append(knob.flag(value))
        elif rest and rest[-1] in _as_given(table, part):
            comments.append(f"# no flag sets {knob.key} = {value_text(value)}")
    name = str(Path(model["hf_config"]).parent) if "hf_config" in model else _id(model["name"])
    lines = [f"vllm serve {name}", *(f"    {flag}" for flag in flags if flag)]
    return "\n".join([" \\\n".join(lines), *comments])


def _id(name: str) -> str:
    """The model's id on Hugging Face, where the catalogue knows one."""
    source = named_model(name).source
    match = re.fullmatch(r"config\.json of (\S+) on Hugging Face", source)
    return name if "/" in name or match is None else match[1]


def _pool(simulation: Simulation) -> list[str]:
    """How the pool is sized."""
    memory, pool = simulation.scenario.memory, simulation.pool
    if pool.sized_by == "gpu_memory_utilization":
        return [f"--gpu-memory-utilization {memory.utilization:g}"]
    if pool.sized_by == "kv_cache_bytes":
        return [f"--kv-cache-memory-bytes {pool.capacity_bytes}"]
    return [f"--num-gpu-blocks-override {pool.num_gpu_blocks}"]


def _as_given(table: dict[str, Any], part: str) -> dict[str, Any]:
    """What the user's own tables say of this part."""
    place = table.get(part) or {}
    if isinstance(place, list):
        place = place[0]
    return place if isinstance(place, dict) else {}
