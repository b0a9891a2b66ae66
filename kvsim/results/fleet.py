"""The summary of a whole fleet, computed from its replicas and its router."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kvsim.memory.ledger import CLASSES, IDLE
from kvsim.plumbing.units import PS_PER_S, seconds_from_ps
from kvsim.results.departures import Departures, within
from kvsim.results.gaps import TokenGaps
from kvsim.results.latency import QUANTILES
from kvsim.results.lifetimes import FleetChangesSummary, Lifetime, changes_of
from kvsim.results.recorder import Recorder
from kvsim.results.routing import RoutingSummary
from kvsim.results.summary import (
    ClassShares,
    LatencySummary,
    MemorySummary,
    PrefixCacheSummary,
    RequestCounts,
    RunSummary,
)
from kvsim.results.summary_beyond import TiersSummary, TransferSummary
from kvsim.results.summary_part import Count, Measured, Share, SummaryPart


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Imbalance(SummaryPart):
    """Load imbalance: the largest value of a replica over the mean of all replicas.

    Given for requests sent, for tokens (prompts and outputs) of finished requests, and for the mean
    number of running sequences. 1 is even; None: all are 0.
    """

    requests: Measured | None
    tokens: Measured | None
    running: Measured | None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FleetSummary(RunSummary):
    """The summary of all replicas with one allocator: the numbers of a run, and numbers of the
    fleet.

    replicas: their number; routing; imbalance; gpu_hours: of all replicas, over the fleet's
    makespan. cost: at a price per GPU-hour. goodput_per_s: requests per second that meet every
    objective, within: their share of all.

    changes: how replicas started and ended; None: no replica did during the run.

    Means over time weigh each replica by its pool. A replica without further requests counts as
    idle until the last replica ends. Peaks are the highest of any replica. A replica may be a
    deployment of prefill and decode replicas: its memory is that of the decode replicas.
    """

    replicas: Count
    routing: RoutingSummary
    imbalance: Imbalance
    gpu_hours: Measured
    cost: Measured | None = None
    within: Share | None = None
    goodput_per_s: Measured | None = None
    changes: FleetChangesSummary | None = None


class FleetTotals(NamedTuple):
    """Inputs of a fleet's summary, with one entry for each replica in each list.

    gpus: of each replica at the start. price_per_gpu_hour, limits_s: of the scenario. lives:
    lifetimes of replicas, if any started or ended during the run; else None. num_moved: requests
    that were moved from a failed replica.
    """

    label: str
    routing: RoutingSummary
    summaries: Sequence[RunSummary]
    recorders: Sequence[Recorder]
    gpus: Sequence[int]
    price_per_gpu_hour: float | None
    limits_s: Mapping[str, float]
    wall_s: float
    lives: list[Lifetime] | None = None
    num_moved: int = 0


def summarise_fleet(totals: FleetTotals) -> FleetSummary:
    """The summary of a fleet after its replicas have served their requests."""
    summaries, recorders = totals.summaries, totals.recorders
    used = [each for each in recorders if each.steps]
    begin_ps = min((each.first_arrival_ps for each in used), default=0)
    end_ps = max((each.end_ps for each in used), default=begin_ps)
    finished = sum(each.requests.finished for each in summaries)
    parts = [Departures.of(each) for each in recorders]
    done = Departures(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    if summaries[0].pool_of is not None and len(done.finish_ps):
        # Requests of one token end at prefill, behind the last step of decode replicas.
        begin_ps = begin_ps if used else int(done.arrival_ps.min())
        end_ps = max(end_ps, int(done.finish_ps.max()))
    makespan_ps = end_ps - begin_ps
    makespan_s = seconds_from_ps(makespan_ps)
    found = done.latencies()
    outputs = int(done.output_tokens.sum())
    lives = totals.lives
    hours = makespan_s / 3600 * sum(totals.gpus)
    if lives is not None:
        spans = (each.ps(begin_ps, end_ps) * totals.gpus[each.like] for each in lives)
        hours = seconds_from_ps(sum(spans)) / 3600
    first = summaries[0]
    kept = within(done, totals.limits_s) if totals.limits_s else None
    submitted = sum(each.requests.submitted for each in summaries) - totals.num_moved
    price = totals.price_per_gpu_hour
    one = summaries[0] if len(summaries) == 1 else None
    return FleetSummary(
        allocator=first.allocator,
        label=totals.label,
        requests=RequestCounts(
            submitted=submitted,
            finished=finished,
            rejected=sum(each.requests.rejected for each in summaries),
        ),
        preemptions=sum(each.preemptions for each in summaries),
        makespan_s=makespan_s,
        requests_per_s=finished / makespan_s if makespan_s else 0.0,
        output_tokens_per_s=outputs / makespan_s if makespan_s else 0.0,
        running_mean=one.running_mean if one else _mean(recorders, "running_sum", makespan_ps),
        waiting_mean=one.waiting_mean if one else _mean(recorders, "waiting_sum", makespan_ps),
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        itl_s=_gaps(recorders),
        e2e_s=found.e2e_s,
        queue_s=found.queue_s,
        memory=one.memory if one else _memory(summaries, recorders, lives),
        prefix_cache=PrefixCacheSummary(
            query_tokens=sum(each.prefix_cache.query_tokens for each in summaries),
            hit_tokens=sum(each.prefix_cache.hit_tokens for each in summaries),
            host_hit_tokens=sum(each.prefix_cache.host_hit_tokens or 0 for each in summaries),
        ),
        copied_bytes=sum(each.copied_bytes for each in summaries),
        recomputed_tokens=sum(each.recomputed_tokens for each in summaries),
        swapped_bytes=sum(each.swapped_bytes for each in summaries),
        steps=sum(each.steps for each in summaries),
        outside_domain_steps=sum(each.outside_domain_steps or 0 for each in summaries),
        wall_s=totals.wall_s,
        window=one.window if one else None,
        notes=one.notes if one else None,
        transfers=TransferSummary.together([s.transfers for s in summaries if s.transfers]),
        offloading=TiersSummary.together([s.offloading for s in summaries if s.offloading]),
        pool_of=first.pool_of,
        replicas=len(summaries),
        routing=totals.routing,
        imbalance=_imbalance(summaries, recorders),
        changes=None if lives is None else changes_of(lives, totals.num_moved, begin_ps, end_ps),
        gpu_hours=hours,
        cost=None if price is None else hours * price,
        within=None if kept is None else kept / submitted if submitted else 0.0,
        goodput_per_s=None if kept is None or not makespan_s else kept / makespan_s,
    )


def _mean(recorders: Sequence[Recorder], name: str, makespan_ps: int) -> float:
    total: int = sum(getattr(each, name) for each in recorders)
    return total / makespan_ps if makespan_ps else 0.0


def _gaps(recorders: Sequence[Recorder]) -> LatencySummary:
    spans, singles = recorders[0].gaps[:0], recorders[0].late_gaps[:0]
    for each in recorders:
        spans, singles = spans + each.gaps, singles + each.late_gaps
    gaps = TokenGaps(spans, singles)
    if not gaps.num:
        return LatencySummary.of({})
    found = [gaps.mean_ps(), *gaps.quantiles_ps(QUANTILES.values())]
    names = ("mean", *QUANTILES)
    return LatencySummary.of({n: gap / PS_PER_S for n, gap in zip(names, found, strict=True)})


def _memory(
    summaries: Sequence[RunSummary], recorders: Sequence[Recorder], lives: list[Lifetime] | None
) -> MemorySummary:
    """The ledger of all pools together; a replica without further work counts as idle until its
    end.
    """
    begin_ps = min((each.first_arrival_ps for each in recorders if each.total_ps), default=0)
    ends = [each.first_arrival_ps + each.total_ps for each in recorders if each.total_ps]
    if lives is not None:
        ends = [each.end_ps for each in recorders if each.steps]
    end_ps = max(ends, default=begin_ps)
    spans_ps = [end_ps - begin_ps] * len(recorders)
    if lives is not None:
        spans_ps = [
            max(each.ps(begin_ps, end_ps, ready=True), recorder.total_ps)
            for each, recorder in zip(lives, recorders, strict=False)
        ]
    whole = sum(each.capacity_bytes * ps for each, ps in zip(recorders, spans_ps, strict=True))
    time_sum = list(map(sum, zip(*(each.time_sum for each in recorders), strict=True)))
    step_sum = list(map(sum, zip(*(each.step_sum for each in recorders), strict=True)))
    for each, span_ps in zip(recorders, spans_ps, strict=True):
        time_sum[IDLE] += each.capacity_bytes * (span_ps - each.total_ps)
    steps = sum(each.pool_steps for each in recorders)
    parts: Counter[str] = Counter()
    for summary, recorder in zip(summaries, recorders, strict=True):
        for name, share in (summary.memory.parts or {}).items():
            parts[name] += share * recorder.capacity_bytes * recorder.total_ps  # type: ignore[assignment]
    shares = [ps / (end_ps - begin_ps) if end_ps > begin_ps else 1.0 for ps in spans_ps]
    tokens = [each.memory.capacity_tokens for each in summaries]
    return MemorySummary(
        capacity_bytes=_over_time([each.capacity_bytes for each in recorders], shares),
        capacity_tokens=_over_time(tokens, shares),
        time_mean=_shares(time_sum, whole),
        parts={name: total / whole for name, total in parts.items()} if whole else {},
        step_mean=_shares(step_sum, steps),
        peak_used=max(each.memory.peak_used for each in summaries),
        peak_allocated=max(each.memory.peak_allocated for each in summaries),
        sharing_savings=None,
    )


def _over_time(capacities: Sequence[int], shares: Sequence[float]) -> int:
    """Time-weighted mean of the fleet's capacity."""
    if all(share == 1 for share in shares):
        return sum(capacities)
    return round(sum(each * share for each, share in zip(capacities, shares, strict=True)))


def _shares(sums: list[int], whole: int) -> ClassShares:
    if not whole:
        return ClassShares(**{name: float(name == "idle") for name in CLASSES})
    return ClassShares(**{name: total / whole for name, total in zip(CLASSES, sums, strict=True)})


def _imbalance(summaries: Sequence[RunSummary], recorders: Sequence[Recorder]) -> Imbalance:
    tokens = [
        int(
            each.finished.column("prompt_tokens").sum()
            + each.finished.column("output_tokens").sum()
        )
        for each in recorders
    ]
    return Imbalance(
        requests=_uneven([each.requests.submitted for each in summaries]),
        tokens=_uneven(tokens),
        running=_uneven([each.running_sum for each in recorders]),
    )


def _uneven(values: Sequence[int]) -> float | None:
    total = sum(values)
    return max(values) * len(values) / total if total else None
