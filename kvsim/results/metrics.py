"""Summarise a run from its recorder and its scheduler's counters."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kvsim.memory.ledger import CLASSES
from kvsim.memory.parts import PARTS
from kvsim.plumbing.units import PS_PER_S, seconds_from_ps
from kvsim.results.departures import Departures
from kvsim.results.encoded import adapters_summary, encoder_summary
from kvsim.results.gaps import TokenGaps
from kvsim.results.latency import QUANTILES
from kvsim.results.measurement import WindowOptions, measure_window
from kvsim.results.notes import notes_on
from kvsim.results.recorder import Recorder
from kvsim.results.summary import (
    ClassShares,
    LatencySummary,
    MemorySummary,
    PrefixCacheSummary,
    RequestCounts,
    RunSummary,
    SpeculationSummary,
)

if TYPE_CHECKING:
    from kvsim.engine.connectors.totals import RunTotals
    from kvsim.engine.replica import Replica
    from kvsim.results.summary_beyond import TiersSummary

# Classes of the ledger that live sequences hold; shared blocks count once.
_HELD = ("used", "reserved", "overprovisioned", "rounding")


def summarise(
    replica: "Replica",
    kind: str,
    label: str,
    *,
    num_requests: int,
    num_lost: int = 0,
    began_s: float,
    window: WindowOptions | None = None,
    verified: "Verified | None" = None,
    shareable: bool = False,
    known_before: Sequence[tuple[str, str]] = (),
) -> RunSummary:
    """The summary of a replica that has served its requests.

    kind: of its allocator. num_requests: number submitted; num_lost: number lost when the replica
    failed. began_s: `time.perf_counter` when the simulation of the run began. window: the part of
    the run that is measured in addition to the whole. verified: counts of verified drafts; None if
    none are drafted. shareable: requests name content that others could hit. known_before: notes
    that stand before the run begins, as `notes_on` takes them.
    """
    scheduler, recorder = replica.scheduler, replica.recorder
    allocator = scheduler.allocator
    cache = allocator.cache_totals()
    tiers = replica.tiers
    refused = len(recorder.rejected)
    finished = num_requests - refused - num_lost
    makespan_s = seconds_from_ps(recorder.makespan_ps)
    outputs = int(recorder.finished.column("output_tokens").sum())
    total_ps = recorder.total_ps
    done = Departures.of(recorder).latencies()
    summary = RunSummary(
        allocator=kind,
        label=label,
        requests=RequestCounts(submitted=num_requests, finished=finished, rejected=refused),
        preemptions=scheduler.num_preemptions,
        makespan_s=makespan_s,
        requests_per_s=finished / makespan_s if makespan_s else 0.0,
        output_tokens_per_s=outputs / makespan_s if makespan_s else 0.0,
        running_mean=recorder.running_sum / total_ps if total_ps else 0.0,
        waiting_mean=recorder.waiting_sum / total_ps if total_ps else 0.0,
        ttft_s=done.ttft_s,
        tpot_s=done.tpot_s,
        itl_s=_gaps_between_tokens(recorder),
        e2e_s=done.e2e_s,
        queue_s=done.queue_s,
        memory=memory(
            recorder,
            allocator.token_bytes,
            shares=allocator.saved_bytes is not None,
            pads_blocks=allocator.pads_blocks,
            tells_cached=allocator.tells_cached,
        ),
        prefix_cache=PrefixCacheSummary(
            query_tokens=cache.query_tokens,
            hit_tokens=cache.hit_tokens + (tiers.awaited_hit_tokens if tiers else 0),
            host_hit_tokens=cache.host_hit_tokens + (tiers.hit_tokens if tiers else 0),
        ),
        copied_bytes=allocator.copied_bytes,
        recomputed_tokens=scheduler.recomputed_tokens,
        swapped_bytes=scheduler.swapped_bytes + cache.host_bytes,
        steps=recorder.steps,
        outside_domain_steps=recorder.outside_steps,
        wall_s=time.perf_counter() - began_s,
        engine_faults=scheduler.engine_faults or None,
        speculation=None if verified is None else _speculation(recorder, verified),
        offloading=None if tiers is None else _offloading(tiers),
        encoder=encoder_summary(scheduler.limits),
        adapters=adapters_summary(scheduler.limits, recorder),
        window=measure_window(recorder, window or WindowOptions()),
    )
    notes = notes_on(summary, recorder, shareable=shareable, before=known_before)
    return replace(summary, notes=notes)


def _offloading(totals: "RunTotals") -> "TiersSummary":
    from kvsim.results.offloaded import tiers_summary  # few runs have tiers

    return tiers_summary(totals)


def _gaps_between_tokens(recorder: Recorder) -> LatencySummary:
    """Summary of all gaps between output tokens, in seconds; None if there are none."""
    gaps = TokenGaps(recorder.gaps, recorder.late_gaps)
    if not gaps.num:
        return LatencySummary.of({})
    found = [gaps.mean_ps(), *gaps.quantiles_ps(QUANTILES.values())]
    names = ("mean", *QUANTILES)
    return LatencySummary.of(
        {name: gap_ps / PS_PER_S for name, gap_ps in zip(names, found, strict=True)}
    )


def memory(
    recorder: Recorder,
    token_bytes: int,
    *,
    shares: bool,
    pads_blocks: bool = False,
    tells_cached: bool = False,
) -> MemorySummary:
    """The ledger's means and peaks.

    token_bytes: bytes of one token's keys and values. shares: whether the allocator counts what
    sharing saves. pads_blocks: whether all of `rounding` is padding of blocks. tells_cached:
    whether the allocator counts why blocks are cached, so that the rest of `cached` was in prompts.
    """
    capacity = recorder.capacity_bytes
    whole = capacity * recorder.total_ps
    time_sum = recorder.time_sum
    sums = dict(zip(CLASSES, time_sum, strict=True))
    parts = dict(zip(PARTS, recorder.part_sums, strict=True))
    if pads_blocks:
        parts["block_padding"] = sums["rounding"]
    if tells_cached:
        others = (total for name, total in parts.items() if name.startswith("cached_"))
        parts["cached_prompts"] = sums["cached"] - sum(others)
    held = sum(sums[name] for name in _HELD)
    logical = held + recorder.saved_sum
    peak_used, peak_allocated = recorder.peaks
    return MemorySummary(
        capacity_bytes=capacity,
        capacity_tokens=capacity // token_bytes if token_bytes else 0,
        time_mean=_shares(time_sum, whole),
        parts={name: total / whole for name, total in parts.items() if total},
        step_mean=_shares(recorder.step_sum, recorder.pool_steps),
        peak_used=peak_used,
        peak_allocated=peak_allocated,
        sharing_savings=(recorder.saved_sum / logical if logical else 0.0) if shares else None,
    )


class Verified(Protocol):
    """Counts of verification: sequences * steps with drafts, drafts, accepted drafts."""

    num_verifications: int
    num_drafts: int
    num_accepted: int


def _speculation(recorder: Recorder, verified: Verified) -> SpeculationSummary:
    """The summary of speculative decoding; `draft_slots` is the part of the ledger of that name."""
    count, drafts = verified.num_verifications, verified.num_drafts
    whole = recorder.capacity_bytes * recorder.total_ps
    return SpeculationSummary(
        verifications=count,
        draft_tokens=drafts,
        accepted_tokens=verified.num_accepted,
        acceptance_rate=verified.num_accepted / drafts if drafts else None,
        mean_acceptance_length=1 + verified.num_accepted / count if count else None,
        draft_slots=recorder.part_sums[PARTS.index("draft_slots")] / whole if whole else 0.0,
    )


def _shares(sums: list[int], whole: int) -> ClassShares:
    """Each class's share of the pool; if no time passed, all is idle."""
    if not whole:
        return ClassShares(**{name: float(name == "idle") for name in CLASSES})
    return ClassShares(**{name: total / whole for name, total in zip(CLASSES, sums, strict=True)})
