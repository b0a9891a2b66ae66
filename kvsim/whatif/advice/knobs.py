"""The knobs of vLLM that an advice tries, and the values to try: one entry a knob.

A knob is tried where the scenario has its key. A knob without a flag is tried too: it says what a
change of the engine would be worth.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kvsim.capacity.options import WAYS
from kvsim.engine.policies.victims import VICTIMS
from kvsim.memory.paged.eviction import EVICTION_POLICIES
from kvsim.memory.paged.options import Paged
from kvsim.scenario.build.context_parallel import BLOCK_SIZE
from kvsim.simulation import Simulation
from kvsim.vllm.grouping import is_uniform
from kvsim.whatif.cache_curve.lru import lru_curve
from kvsim.whatif.cache_curve.order import in_order
from kvsim.whatif.scenario_tables import with_value
from kvsim.whatif.tier_sizes import tier_for

_ADAPTERS = "each adapter takes memory of the GPU; [memory] counts it with max_lora_rank"
SHARES = (0.8, 0.85, 0.9, 0.92, 0.95)


class Knob(NamedTuple):
    """One setting that an advice changes. key: in the scenario's tables. values: gives the values
    to try for a simulation. flag: the argument of `vllm serve` for a value; None if no flag sets
    it. caution: effects that a simulation of memory and time does not show.
    """

    key: str
    values: Callable[[Simulation], Iterable[Any]]
    flag: Callable[[Any], str] | None
    caution: str = ""

    def now(self, tables: Mapping[str, Any]) -> Any:
        """The knob's value in resolved tables; None if it is not set."""
        part, *rest = self.key.split(".")
        if not rest:
            return tables.get(part) or None
        place = tables[part][0] if part == "allocator" else tables[part]
        return place.get(rest[-1])


def _flag(name: str) -> Callable[[Any], str]:
    return lambda value: f"--{name} {value}"


def _switch(name: str) -> Callable[[Any], str]:
    return lambda value: f"--{'' if value else 'no-'}{name}"


def _around(field: str, *usual: int) -> Callable[[Simulation], list[int]]:
    """Values to try for a key of [scheduler]: half, double, a quarter and four times the current
    value, and usual values.
    """

    def values(simulation: Simulation) -> list[int]:
        now = getattr(simulation.scenario.scheduler, field)
        near = [max(1, now // 4), max(1, now // 2), 2 * now, 4 * now]
        return list(dict.fromkeys([*near, *usual]))

    return values


def _lengths(simulation: Simulation) -> list[int]:
    """A max_model_len to try: the longest request rounded up to a multiple of 256, if lower than
    the current value.
    """
    requests = simulation.stream.requests
    longest = max((r.prompt_tokens + r.output_tokens for r in requests), default=0)
    needed = min(-(-longest // 256) * 256, simulation.max_model_len)
    return [needed] if 0 < needed < simulation.max_model_len else []


def _tiers(simulation: Simulation) -> list[list[dict[str, Any]] | None]:
    """Tiers to try: none, if there is one; host memory for all content of the requests, and for a
    quarter and a half of it. Nothing is added if no request could hit any content, or the device
    holds all.
    """
    scenario = simulation.scenario
    none: list[list[dict[str, Any]] | None] = [None] if scenario.tier else []
    allocator = scenario.allocator[0]
    if not isinstance(allocator, Paged) or not allocator.enable_prefix_caching:
        return none
    curve = lru_curve(in_order(simulation), BLOCK_SIZE, outputs=True)
    tokens = (len(curve.hit_tokens) - 1) * BLOCK_SIZE
    if tokens * simulation.layout.bytes_per_token <= simulation.pool.capacity_bytes:
        return none
    sizes = [tier_for(simulation, tokens // part) for part in (1, 2, 4)]
    found = [_resized(simulation, size.changes) for size in sizes if size is not None]
    return none + [tiers for at, tiers in enumerate(found) if tiers not in found[:at]]


def _resized(simulation: Simulation, changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The scenario's tiers with these changes."""
    there = simulation.resolved() | {}
    for key, value in changes.items():
        there = with_value(there, key, value)
    return list(there["tier"])


def _size_of(tiers: list[dict[str, Any]] | None) -> str:
    if not tiers:
        return ""
    if "max_local_cpu_size" in tiers[0]:
        return f"LMCACHE_MAX_LOCAL_CPU_SIZE={tiers[0]['max_local_cpu_size']:g}"
    return f"--kv-offloading-size {tiers[0]['kv_offloading_size']:g}"


def _evictions(simulation: Simulation) -> list[dict[str, str] | None]:
    """Eviction policies to try; None, the engine's default, comes first, for a scenario that sets
    another.

    Empty without a prefix cache, or without content that could be hit.
    """
    caches = getattr(simulation.scenario.allocator[0], "enable_prefix_caching", False)
    if not caches or all(r.prompt_runs is None and r.n == 1 for r in simulation.stream.requests):
        return []
    return [None, *({"kind": name} for name in EVICTION_POLICIES if name != "lru")]


def _retentions(simulation: Simulation) -> list[int | str]:
    """Retention intervals to try: everything, the least, and one between; empty if no layer has a
    window or state.
    """
    allocator = simulation.scenario.allocator[0]
    if not isinstance(allocator, Paged) or not allocator.enable_prefix_caching:
        return []
    windows = not allocator.disable_hybrid_kv_cache_manager
    if is_uniform(simulation.layout, windows=windows):
        return []
    return ["none", 0, 16 * allocator.grouping(simulation.layout).hit_tokens]


def _shares(simulation: Simulation) -> list[float]:
    """Shares to try, only if the device's share sizes the pool."""
    memory = simulation.scenario.memory
    sized = any(getattr(memory, way) is not None for way in WAYS[1:])
    return [] if sized else list(SHARES)


def _adapters(part: str) -> Callable[[Simulation], list[int]]:
    """Values of max_loras to try: twice, four times and as many as requests use; empty if all can
    run at once. part: the table that has the key.
    """

    def values(simulation: Simulation) -> list[int]:
        scenario = simulation.scenario
        scheduler = simulation.replica_spec(scenario.allocator[0]).scheduler
        limit = getattr(scheduler, "most_adapters", 0)
        asked = len({each.adapter for each in simulation.stream.requests} - {None})
        if (
            not limit
            or asked <= limit
            or part != ("memory" if scenario.memory.max_loras else "scheduler")
        ):
            return []
        return list(dict.fromkeys(min(more, asked) for more in (2 * limit, 4 * limit, asked)))

    return values


KNOBS = (
    Knob(
        "memory.gpu_memory_utilization",
        _shares,
        _flag("gpu-memory-utilization"),
        "other users of the GPU must fit in the rest",
    ),
    Knob(
        "model.max_model_len",
        _lengths,
        _flag("max-model-len"),
        "longer requests than those of this stream would be refused",
    ),
    Knob(
        "model.kv_cache_dtype",
        lambda _: ("auto", "fp8"),
        _flag("kv-cache-dtype"),
        "fewer bits change what the model says",
    ),
    Knob("allocator.0.block_size", lambda _: (8, 16, 32, 64, 128), _flag("block-size")),
    Knob(
        "allocator.0.enable_prefix_caching",
        lambda _: (True, False),
        _switch("enable-prefix-caching"),
    ),
    Knob(
        "allocator.0.host_cache_gib",
        lambda _: (None,),  # an engine that offloads may be better off without
        lambda gib: "" if gib is None else f"--kv-offloading-size {gib:g}",
    ),
    Knob(
        "tier",
        _tiers,
        _size_of,
        "it takes memory of the host; the host's link is the device's own figure",
    ),
    Knob(
        "allocator.0.prefix_cache_retention_interval",
        _retentions,
        lambda tokens: f"--prefix-cache-retention-interval {str(tokens).capitalize()}",
    ),
    Knob("allocator.0.eviction_policy", _evictions, None),
    Knob("allocator.0.watermark", lambda _: (0.0, 0.01, 0.05), _flag("watermark")),
    Knob("scheduler.max_num_seqs", _around("max_num_seqs", 256, 1024), _flag("max-num-seqs")),
    Knob("memory.max_loras", _adapters("memory"), _flag("max-loras"), _ADAPTERS),
    Knob("scheduler.max_loras", _adapters("scheduler"), _flag("max-loras"), _ADAPTERS),
    Knob(
        "scheduler.max_num_batched_tokens",
        _around("max_num_batched_tokens", 2048, 8192),
        _flag("max-num-batched-tokens"),
    ),
    Knob(
        "scheduler.enable_chunked_prefill",
        lambda _: (True, False),
        _switch("enable-chunked-prefill"),
    ),
    Knob(
        "scheduler.long_prefill_token_threshold",
        lambda _: (0, 512, 2048),
        _flag("long-prefill-token-threshold"),
    ),
    Knob("scheduler.async_scheduling", lambda _: (True, False), _switch("async-scheduling")),
    Knob(
        "scheduler.scheduler_reserve_full_isl",
        lambda _: (True, False),
        _switch("scheduler-reserve-full-isl"),
    ),
    Knob("scheduler.preemption_mode", lambda _: ("recompute", "swap"), None),
    Knob("scheduler.victim", lambda _: tuple({"kind": name} for name in VICTIMS), None),
)
