"""The tiers of a scenario behind each of its replicas."""

from kvsim.device import Device
from kvsim.engine.connectors.offloading.settings import OffloadedGroup
from kvsim.engine.connectors.tiers import TierSite
from kvsim.engine.replica import ReplicaSpec
from kvsim.memory.paged.options import Paged
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.vllm.grouping import is_uniform


def with_tiers(spec: ReplicaSpec, scenario: Scenario, device: Device) -> ReplicaSpec:
    """The same replica with the scenario's tiers behind it; InputError where it can have none."""
    if not scenario.tier:
        return spec
    if scenario.disaggregation is not None:
        raise InputError(
            "tiers behind prefill and decode replicas are not simulated",
            where="tier",
            value=len(scenario.tier),
            remedy="leave [[tier]] or disaggregation out",
        )
    first, *behind = scenario.tier
    plan = first.connector(_site(spec, scenario, device), behind)
    return spec.with_connector(plan.build, copies_hold_blocks=plan.holds)


def shared_by(scenario: Scenario) -> str | None:
    """The key by which the replicas of a fleet share a tier; None: they share none."""
    for place, tier in enumerate(scenario.tier):
        if tier.is_shared:
            return f"tier.{place}.shared"
    if any(each.shares_storage for each in scenario.allocator):
        return "allocator.hicache_storage_shared"
    return None


def check_shared(scenario: Scenario) -> None:
    """Raise InputError for a tier that replicas share where there is one replica."""
    where = shared_by(scenario)
    if where is not None:
        raise InputError(
            "one replica shares its tiers with no other",
            where=where,
            value=True,
            remedy="leave it out, or give the scenario fleet.replicas",
        )


def _site(spec: ReplicaSpec, scenario: Scenario, device: Device) -> TierSite:
    options = spec.allocator
    if not isinstance(options, Paged):
        raise InputError(
            "a tier stands behind blocks of paged memory",
            where="allocator.kind",
            value=type(options).__name__,
            remedy='kind = "paged", or leave [[tier]] out',
        )
    if options.host_cache_gib is not None or options.sharing == "copy-on-write":
        raise InputError(
            "a tier takes the place of host_cache_gib, and shares through the prefix cache",
            where="allocator",
            value="host_cache_gib" if options.host_cache_gib is not None else "copy-on-write",
            remedy="leave it out",
        )
    if scenario.speculative_config is not None:
        raise InputError(
            "tiers under tokens drafted ahead are not simulated",
            where="tier",
            value=len(scenario.tier),
            remedy="leave [[tier]] or speculative_config out",
        )
    groups, block_bytes = _groups(spec, options)
    interval, rules = options.prefix_cache_retention_interval, spec.scheduler.block_rules
    retention = rules.default_retention if interval is None else interval
    return TierSite(
        groups,
        block_bytes,
        scenario.model.tensor_parallel_size,
        options.enable_prefix_caching,
        None if retention == "none" else retention,
        device.host_bytes_per_s,
        getattr(spec.scheduler, "max_num_batched_tokens", 1),
    )


def _groups(spec: ReplicaSpec, options: Paged) -> tuple[tuple[OffloadedGroup, ...], int]:
    """The groups of layers with chunks of one block, and the bytes of a block of the device."""
    layout, size = spec.layout, options.block_size
    if is_uniform(layout, windows=not options.disable_hybrid_kv_cache_manager):
        block_bytes = layout.bytes_per_token * size
        return (OffloadedGroup(size, 1, block_bytes),), block_bytes
    if layout.has_own_blocks:
        raise InputError(
            "tiers behind caches with blocks of their own are not simulated",
            where="tier",
            value="tier",
            remedy="leave [[tier]] out, or take another model",
        )
    grouping = spec.plan or options.grouping(layout, spec.scheduler.block_rules)
    if any(group.state_bytes for group in grouping.groups) or options.prefix_match_unit:
        raise InputError(
            "tiers behind recurrent states, or hits inside blocks, are not simulated",
            where="tier",
            value="tier",
            remedy="leave [[tier]] or prefix_match_unit out",
        )
    if any(group.chunk_tokens for group in grouping.groups):
        raise InputError(
            "tiers behind chunks of local attention are not simulated",
            where="tier",
            value="tier",
            remedy="leave [[tier]] out, or set allocator.disable_hybrid_kv_cache_manager = true",
        )
    groups = tuple(
        OffloadedGroup(
            group.block_size, 1, group.slot_bytes * group.block_size, group.window_tokens
        )
        for group in grouping.groups
    )
    return groups, grouping.block_bytes
