"""Sizes of host memory after a device, as keys of a scenario and as flags of its engine."""

from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

from kvsim.engine.connectors.offloading.lmcache import LMCacheTier
from kvsim.engine.schedulers.continuous_options import Continuous
from kvsim.memory.paged.options import Paged
from kvsim.plumbing.units import GIB
from kvsim.simulation import Simulation

_GB = 10**9


class TierSize(NamedTuple):
    """A size of a host memory tier. changes: keys of the scenario's tables and their values. flags:
    the same for the engine.
    """

    changes: Mapping[str, Any]
    flags: str


def all_ranks_bytes(simulation: Simulation, tokens: int) -> int:
    """Bytes of the KV of `tokens` tokens on all tensor-parallel ranks."""
    ranks = simulation.scenario.model.tensor_parallel_size
    return tokens * simulation.layout.bytes_per_token * ranks


def tier_for(simulation: Simulation, tokens: int) -> TierSize | None:
    """Host memory for this many tokens: the scenario's tier with another size, or vLLM's
    OffloadingConnector if it has none. None if the simulated engine supports no tier.
    """
    scenario, options = simulation.scenario, simulation.scenario.allocator[0]
    num_bytes = all_ranks_bytes(simulation, tokens)
    gib = max(1, ceil(num_bytes / GIB))
    flags = f"--kv-offloading-size {gib}"
    if scenario.tier and isinstance(scenario.tier[0], LMCacheTier):
        gib = max(1, ceil(num_bytes / scenario.model.tensor_parallel_size / GIB))  # of each rank
        return TierSize({"tier.0.max_local_cpu_size": gib}, f"LMCACHE_MAX_LOCAL_CPU_SIZE={gib}")
    if scenario.tier:
        return TierSize({"tier.0.kv_offloading_size": gib}, flags)
    if getattr(options, "enable_hierarchical_cache", False):
        return _hierarchical(simulation, tokens)
    if (
        isinstance(options, Paged)
        and isinstance(scenario.scheduler, Continuous)
        and options.enable_prefix_caching
        and options.host_cache_gib is None
        and options.sharing != "copy-on-write"
        and not options.prefix_match_unit
        and scenario.speculative_config is None
        and scenario.disaggregation is None
        and not any(group.state_bytes for group in simulation.layout.groups)
    ):
        tier = {"kind": "vllm-offloading", "kv_offloading_size": gib}
        return TierSize({"tier": [tier]}, flags)
    return None


def _hierarchical(simulation: Simulation, tokens: int) -> TierSize:
    options = simulation.scenario.allocator[0]
    num_bytes = tokens * simulation.layout.bytes_per_token
    if getattr(options, "hicache_size", None) is not None:
        size = max(1, ceil(num_bytes / _GB))
        return TierSize({"allocator.0.hicache_size": size}, f"--hicache-size {size}")
    ratio = ceil(10 * num_bytes / simulation.pool.capacity_bytes) / 10
    return TierSize({"allocator.0.hicache_ratio": ratio}, f"--hicache-ratio {ratio:g}")
