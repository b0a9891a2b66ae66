"""The command line of llama-server for a scenario."""

from typing import Any

from kvsim.simulation import Simulation
from kvsim.whatif.servers.flags import flags, hub_id, written

_SCHEDULER = {
    "n_parallel": "parallel",
    "kv_unified": "kv-unified",
    "n_batch": "batch-size",
    "slot_prompt_similarity": "slot-prompt-similarity",
    "context_shift": "context-shift",
    "cache_reuse": "cache-reuse",
    "cache_ram": "cache-ram",
    "cache_idle_slots": "cache-idle-slots",
    "ctx_checkpoints": "ctx-checkpoints",
}
_ALLOCATOR = {"n_ubatch": "ubatch-size", "swa_full": "swa-full"}
_TYPES = {"fp16": "f16", "auto": "f16", "fp32": "f32"}


def command_of(
    simulation: Simulation, tables: dict[str, Any], before: dict[str, Any] | None = None
) -> str:
    """`llama-server -m FILE --flags`: the context in tokens of all slots, and the options that are
    not at their defaults. FILE is the model's name.
    """
    scenario, model = simulation.scenario, tables["model"]
    allocator = scenario.allocator[0]
    own, left = flags(scenario.scheduler_of(allocator), _SCHEDULER, "scheduler")
    cells, beside = flags(allocator, _ALLOCATOR, "allocator.0")
    name = hub_id(model["name"]).rpartition("/")[2] if "name" in model else "model"
    dtype = str(model.get("kv_cache_dtype", "auto"))
    kept = _TYPES.get(dtype, dtype)
    types = [] if kept == "f16" else [f"--cache-type-k {kept}", f"--cache-type-v {kept}"]
    context = simulation.pool.capacity_bytes // simulation.layout.bytes_per_token
    arguments = [f"-m {name}.gguf", f"--ctx-size {context}", *own, *cells, *types]
    return written("llama-server", arguments, [*left, *beside])
