"""Measured requests and gauges as an observed run, for `kvsim validate run`."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from kvsim.interchange.to_scenario.server import DescribedServer
from kvsim.interchange.to_scenario.stream import first_arrival, private_ids, prompt_runs, usable
from kvsim.observed.rows import ObservedRequest, Tick
from kvsim.plumbing.units import PS_PER_NS
from kvsim.readers.description import (
    NS_PER_S,
    Clock,
    GaugeSample,
    GaugeSeries,
    Requests,
    SourceRequest,
)
from kvsim.request import Request

_ZONE_NS = 15 * 60 * NS_PER_S  # time zones are whole quarters of an hour apart
_MOST_OUTSIDE = 0.1  # of a log's busy lines, outside the requests they are to be of
_DIGITS = 9


class Recording(NamedTuple):
    """What the folder holds. meta: of meta.json. served: each row with the request it was."""

    meta: dict[str, Any]
    served: list[tuple[ObservedRequest, Request]]
    ticks: list[Tick]


def recording_of(
    server: DescribedServer,
    requests: Requests | None,
    gauges: GaugeSeries | None,
    clock: Clock | None,
    source: str,
    notes: list[str],
) -> Recording | None:
    """The run, None where no request was timed from its arrival to its end. clock: the gauges'."""
    if requests is None:
        return None
    rows = [row for row in usable(requests, []) if _is_timed(row)]
    rows.sort(key=lambda row: row.arrival_ns or 0)
    if not rows:
        return None
    lacking = len(requests.rows) - len(rows)
    if lacking:
        notes.append(f"the observed run lacks {lacking:,} requests that were not timed as a whole")
    zero = first_arrival(rows)
    assert zero is not None
    served = _served(rows, requests.hash_block_tokens, zero)
    ticks = _ticks(gauges, clock, requests.clock, served, zero, notes) if gauges else []
    meta = server.meta_table | {"source": source}
    engine = server.settings.engine or "vllm"
    if engine != "vllm":
        notes.append(f"the observed run is replayed by vLLM's rules, not by those of {engine}")
    if len(ticks) > 1:
        gaps = [after.t - before.t for before, after in pairwise(ticks)]
        meta["tick_seconds"] = round(median(gaps), 3)
    elif ticks:
        meta["tick_seconds"] = max(round(ticks[0].t, 3), 0.001)
    return Recording(meta, served, ticks)


def _is_timed(row: SourceRequest) -> bool:
    times = (row.arrival_ns, row.first_token_ns, row.last_token_ns)
    return None not in times and list(times) == sorted(times)  # type: ignore[type-var]


def _served(
    rows: list[SourceRequest], block_tokens: int | None, zero: int
) -> list[tuple[ObservedRequest, Request]]:
    private = private_ids(rows, block_tokens)
    ids = [row.id for row in rows]
    names = ids if len(set(ids)) == len(ids) else [f"r{index}" for index in range(len(ids))]
    served = []
    for name, row in zip(names, rows, strict=True):
        assert row.prompt_tokens is not None
        assert row.output_tokens is not None
        arrival, first, last = (
            round(((time or zero) - zero) / NS_PER_S, _DIGITS)
            for time in (row.arrival_ns, row.first_token_ns, row.last_token_ns)
        )
        request = Request(
            name,
            ((row.arrival_ns or zero) - zero) * PS_PER_NS,
            row.prompt_tokens,
            row.output_tokens,
            prompt_runs=prompt_runs(row, block_tokens, private),
        )
        observed = ObservedRequest.parse(
            {
                "id": name,
                "arrival_s": arrival,
                "prompt_tokens": row.prompt_tokens,
                "output_tokens": row.output_tokens,
                "first_token_s": first,
                "last_token_s": last,
                "cached_tokens": row.cached_tokens,
            },
            f"request {name}",
        )
        served.append((observed, request))
    return served


def _ticks(
    gauges: GaugeSeries,
    clock: Clock | None,
    requests_clock: Clock,
    served: Sequence[tuple[ObservedRequest, Request]],
    zero: int,
    notes: list[str],
) -> list[Tick]:
    """The gauges on the requests' clock, from the first arrival to the last answer."""
    end = zero + round(max(row.last_token_s for row, _ in served) * NS_PER_S)
    samples = gauges.samples
    shift: int | None = None
    if clock == requests_clock and clock is not None:
        shift = 0
    elif clock == "local" and requests_clock == "unix":
        shift = _zone(samples, zero, end)
    if shift is None:
        notes.append("the gauges have no clock in common with the requests, and are left out")
        return []
    gap = median([b.time_ns - a.time_ns for a, b in pairwise(samples)] or [0])
    kept = [each for each in samples if zero <= each.time_ns + shift <= end + gap]
    if not kept:
        notes.append("the gauges are of another time than the requests, and are left out")
    return [_tick(each, each.time_ns + shift - zero) for each in kept]


def _zone(samples: Sequence[GaugeSample], zero: int, end: int) -> int | None:
    """What is to be added to a log's local time, a whole number of quarters of an hour; None where
    its busy lines are not of these requests.
    """
    busy = [each.time_ns for each in samples if each.running]
    if not busy:
        return None
    shift = round((zero - busy[0]) / _ZONE_NS) * _ZONE_NS
    gap = max((b - a for a, b in pairwise(busy)), default=0)
    outside = sum(not zero - gap <= time + shift <= end + gap for time in busy)
    return shift if outside <= _MOST_OUTSIDE * len(busy) else None


def _tick(sample: GaugeSample, time_ns: int) -> Tick:
    return Tick(
        t=round(time_ns / NS_PER_S, _DIGITS),
        running=sample.running,
        waiting=sample.waiting,
        kv_cache_pct=None if sample.usage is None else round(100 * sample.usage, 6),
        prompt_throughput=sample.prompt_throughput,
        gen_throughput=sample.generation_throughput,
    )
