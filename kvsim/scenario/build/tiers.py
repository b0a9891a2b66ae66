"""Build the offload tiers of each replica of a scenario."""

from collections.abc import Sequence
from dataclasses import replace

from kvsim.device import Device
from kvsim.engine.connectors import TIERS
from kvsim.engine.connectors.offloading.settings import OffloadedGroup
from kvsim.engine.connectors.tiers import StageSite, TierSite
from kvsim.engine.replica import ReplicaSpec
from kvsim.memory import ALLOCATORS
from kvsim.memory.paged.options import Paged
from kvsim.scenario import Scenario
from kvsim.support.parts import ServerParts
from kvsim.support.table import check
from kvsim.vllm.grouping import BlockGroup, Grouping, is_uniform


def with_tiers(
    spec: ReplicaSpec, scenario: Scenario, devices: Sequence[Device], parts: Sequence[ReplicaSpec]
) -> ReplicaSpec:
    """A copy of the replica's specification with the scenario's tiers (at least one); InputError if
    the tiers are not supported.

    devices, parts: device and specification of each pipeline stage.
    """
    first, *behind = scenario.tier
    site = _site(parts[0], scenario, devices[0])
    if len(parts) > 1:
        check(_parts(scenario)._replace(stages=len(parts)))
        sites = [_site(*each) for each in zip(parts, [scenario] * len(parts), devices, strict=True)]
        site = _on_stages(site, sites, _parts(scenario))
    plan = first.connector(site, behind)
    return replace(spec, connector=plan._replace(serves=_served(scenario)))


def _served(scenario: Scenario) -> frozenset[str]:
    """Features of the scenario with which all its tiers must be combinable."""
    return frozenset.intersection(*(each.serves for each in scenario.tier))


def _parts(scenario: Scenario) -> ServerParts:
    """The tiers of the scenario as rows for the table of refusals."""
    tiers = tuple(TIERS.name_of(each) for each in scenario.tier)
    return ServerParts(tiers=tiers, serves=_served(scenario))


def _on_stages(first: TierSite, sites: Sequence[TierSite], tiers: ServerParts) -> TierSite:
    """The offload context of a whole pipeline. vLLM 0.33 counts the chunks of host memory by the
    bytes of the first stage, and each stage divides it by its own bytes
    (v1/kv_offload/cpu/spec.py). InputError if these differ, since stages would overwrite each
    other.
    """
    check(tiers._replace(stage_bytes=tuple(site.block_bytes for site in sites)))
    stages = tuple(
        StageSite(tuple(group.block_bytes for group in site.groups), site.host_bytes_per_s)
        for site in sites
    )
    return first._replace(ranks=first.ranks * len(sites), stages=stages)


def _site(spec: ReplicaSpec, scenario: Scenario, device: Device) -> TierSite:
    options = spec.allocator
    tiers = _parts(scenario)
    given = tuple((key, value) for key, value in options if value is not None)
    tiers = tiers._replace(allocator=ALLOCATORS.name_of(options), options=given)
    check(tiers)
    assert isinstance(options, Paged)
    groups, block_bytes = _groups(spec, options, tiers)
    config = scenario.speculative_config
    if config is not None:
        one_pass = config.speculation.rules.block_queries
        check(tiers._replace(drafts=True, one_pass=one_pass))
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


def _groups(
    spec: ReplicaSpec, options: Paged, tiers: ServerParts
) -> tuple[tuple[OffloadedGroup, ...], int]:
    """(layer groups with offload chunks of one block, bytes of a device block)."""
    layout, size = spec.layout, options.block_size
    if is_uniform(layout, windows=not options.disable_hybrid_kv_cache_manager):
        block_bytes = layout.bytes_per_token * size
        drafts = any(group.draft_layers for group in layout.groups) and _reads_ahead(spec)
        return (OffloadedGroup(size, 1, block_bytes, drafts=drafts),), block_bytes
    if layout.has_own_blocks:
        check(tiers._replace(layers=frozenset(("own blocks",))))
    grouping = spec.plan or options.grouping(layout, spec.scheduler.block_rules)
    _check_states(grouping, options, tiers)
    reads_ahead = _reads_ahead(spec)
    groups = (_offloaded(group, reads_ahead=reads_ahead) for group in grouping.groups)
    return tuple(groups), grouping.block_bytes


def _reads_ahead(spec: ReplicaSpec) -> bool:
    """Whether the KV of a drafter's layers also depends on the next token."""
    return spec.speculation is not None and spec.speculation.rules.keys_read_ahead


def _offloaded(group: BlockGroup, *, reads_ahead: bool) -> OffloadedGroup:
    """The `OffloadedGroup` of one layer group, with offload chunks of one block. reads_ahead:
    result of `_reads_ahead`.
    """
    size = group.block_size
    if group.state_bytes:
        return OffloadedGroup(size, 1, group.state_bytes, 0)
    reach = group.window_tokens if group.chunk_tokens is None else group.chunk_tokens
    chunked = group.chunk_tokens is not None
    drafts = group.draft_layers > 0 and reads_ahead
    return OffloadedGroup(size, 1, group.slot_bytes * size, reach, chunked, drafts)


def _check_states(grouping: Grouping, options: Paged, tiers: ServerParts) -> None:
    """Raise InputError for recurrent states that no offload chunk can hold, or for hits inside
    blocks.
    """
    states = [group.state_bytes > 0 for group in grouping.groups]
    caches = options.enable_prefix_caching
    if all(states):  # by default vLLM keeps none of them
        caches = caches and "enable_prefix_caching" in options.model_fields_set
    layers = frozenset(("states",) if any(states) else ())
    check(tiers._replace(layers=layers, caches=caches, grouped=True))
