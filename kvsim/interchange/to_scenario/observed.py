"""Write a server's measurements as an observed run: NAME.run, next to the scenario NAME.toml."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from kvsim.interchange.merge import Merged
from kvsim.interchange.to_scenario.gauge_window import Client, Placed, as_they_are, inside, place
from kvsim.interchange.to_scenario.measured import measured_of
from kvsim.interchange.to_scenario.server import DescribedServer
from kvsim.interchange.to_scenario.stream import first_arrival, private_ids, prompt_runs, usable
from kvsim.observed.rows import ObservedRequest, Tick
from kvsim.observed.writing import Recording
from kvsim.plumbing.units import PS_PER_NS
from kvsim.readers.description import (
    NS_PER_S,
    Clock,
    GaugeSample,
    SourceRequest,
)
from kvsim.readers.detect import Read
from kvsim.request import Request

_DIGITS = 9


def recording_of(
    server: DescribedServer,
    reads: Sequence[Read],
    merged: Merged,
    source: str,
    notes: list[str],
) -> Recording | None:
    """The observed run: requests, gauges, statistics and steps; None if nothing was measured."""
    requests = merged.requests
    rows = [row for row in usable(requests, []) if _is_timed(row)] if requests is not None else []
    rows.sort(key=lambda row: row.arrival_ns or 0)
    served: list[tuple[ObservedRequest, Request]] = []
    if requests is not None and rows:
        lacking = len(requests.rows) - len(rows)
        if lacking:
            notes.append(
                f"the observed run lacks {lacking:,} requests that were not timed as a whole"
            )
        served = _served(rows, requests.hash_block_tokens, first_arrival(rows) or 0)
    ticks = _ticks(merged, rows, notes)
    figures = measured_of(reads, merged.load, [row for row, _ in served], ticks)
    steps = [step for read in reads for step in read.description.steps]
    if not (served or figures is not None or steps):
        return None
    meta = server.meta_table | {"source": source}
    engine = server.settings.engine or "vllm"
    if engine != "vllm" and served:
        notes.append(f"the observed run is replayed by vLLM's rules, not by those of {engine}")
    if len(ticks) > 1:
        gaps = [after.t - before.t for before, after in pairwise(ticks)]
        meta["tick_seconds"] = max(round(median(gaps), 3), 0.001)
    elif ticks:
        meta["tick_seconds"] = max(round(ticks[0].t, 3), 0.001)
    return Recording(meta, served, ticks, figures, steps)


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


def _ticks(merged: Merged, rows: Sequence[SourceRequest], notes: list[str]) -> list[Tick]:
    """Gauge samples on the client's clock, from its first request to its last answer.

    Without a client all samples are used, with times from the first one.
    """
    if merged.gauges is None:
        return []
    samples, clock = merged.gauges.samples, merged.gauges_clock
    client, its_clock = _client(merged, rows)
    if client is None:
        if not samples:
            return []
        zero = samples[0].time_ns
        return [_tick(each, each.time_ns - zero) for each in samples]
    if clock == "run" and rows:  # from the first arrival on, whatever clock that is on
        zero_ns = client.zero_ns
        samples = tuple(each._replace(time_ns=each.time_ns + zero_ns) for each in samples)
        found: Placed | str = as_they_are(samples, client)
    elif clock == its_clock and clock is not None:
        kept = inside(samples, client, 0)
        found = Placed(0, None) if kept else "they are of another time"
    else:
        found = place(samples, client, zones=(clock, its_clock) == ("local", "unix"))
    if isinstance(found, str):
        notes.append(f"the gauges are left out: {found}")
        return []
    kept = inside(samples, client, found.shift_ns)
    if len(kept) < len(samples):
        notes.append(f"{len(kept):,} of {len(samples):,} samples of gauges lie in the benchmark")
    return [_tick(each, after) for after, each in kept]


def _client(merged: Merged, rows: Sequence[SourceRequest]) -> tuple[Client | None, Clock | None]:
    """The client to align gauges with, and the name of its clock; (None, None) without a client."""
    load, requests = merged.load, merged.requests
    ended = None if load is None else load.ended_local_ns
    if rows and requests is not None:
        zero = first_arrival(list(rows)) or 0
        spans = [(row.arrival_ns or 0, row.last_token_ns or 0) for row in rows]
        duration = max(end for _, end in spans) - zero
        return Client(zero, duration, spans, ended_local_ns=ended), requests.clock
    if load is None or load.duration_s is None:
        return None, None
    duration = round(load.duration_s * NS_PER_S)
    return Client(0, duration, (), load.max_concurrency, ended), "own"


def _tick(sample: GaugeSample, time_ns: int) -> Tick:
    return Tick(
        t=round(time_ns / NS_PER_S, _DIGITS),
        running=sample.running,
        waiting=sample.waiting,
        kv_cache_pct=None if sample.usage is None else round(100 * sample.usage, 6),
        prompt_throughput=sample.prompt_throughput,
        gen_throughput=sample.generation_throughput,
    )
