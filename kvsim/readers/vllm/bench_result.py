"""Convert a benchmark's result, from a file or its printed table, to a description."""

import heapq
from datetime import UTC, datetime

from kvsim.readers.description import (
    NS_PER_S,
    ClientLoad,
    Clock,
    Description,
    Requests,
    ServerSettings,
    SourceRequest,
)
from kvsim.readers.parsing.fields import Fields
from kvsim.readers.parsing.reports import seconds_of_ms, statistics
from kvsim.readers.vllm.bench_rows import BenchRow, bench_rows

_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}
_STATS = {"median": "p50", **{name: name for name in ("mean", "p50", "p90", "p95", "p99")}}


def described(result: Fields, where: str) -> Description:
    """Convert the keys of a benchmark's result to a Description: requests, mean load
    and latencies.
    """
    measured: dict[str, float] = {}
    for name, figure in _LATENCIES.items():
        stats = {f"{key}_{name}_ms": stat for key, stat in _STATS.items()}
        measured |= statistics(result, figure, stats, seconds_of_ms)
        points = {f"{key}_{name}": stat for key, stat in _STATS.items()}  # InferenceX's, in s
        measured |= {
            k: v for k, v in statistics(result, figure, points).items() if k not in measured
        }
    seconds = result.number("duration")
    if seconds is not None:
        measured["duration_s"] = seconds
    notes: list[str] = []
    requests = _requests(result, notes)
    settings = ServerSettings.parse({"served_model_name": result.text("model_id")}, where)
    return Description(
        settings, requests, load=_load(result), measured=measured, notes=tuple(notes)
    )


def _load(result: Fields) -> ClientLoad | None:
    count = result.tokens("completed")
    if not count:
        return None
    rate = result.get("request_rate")
    return ClientLoad.parse(
        {
            "num_requests": count,
            "prompt_tokens": (result.tokens("total_input_tokens") or 0) / count,
            "output_tokens": (result.tokens("total_output_tokens") or 0) / count,
            "rate_per_s": None if rate in ("inf", None) else rate,
            "burstiness": result.get("burstiness") or 1.0,
            "max_concurrency": result.get("max_concurrency"),
            "duration_s": result.number("duration") or None,
            "ended_local_ns": _ended(result),
        },
        result.where,
    )


def _ended(result: Fields) -> int | None:
    """When the benchmark ended, in ns, from its `date` in local time, read as if it were UTC."""
    try:
        moment = datetime.strptime(result.text("date") or "", "%Y%m%d-%H%M%S")
    except ValueError:
        return None
    return round(moment.replace(tzinfo=UTC).timestamp()) * NS_PER_S


def _requests(result: Fields, notes: list[str]) -> Requests | None:
    """The answered requests; None if the result has none."""
    rows = bench_rows(result)
    starts, clock = _starts(result, rows, notes) if rows else ([], "own")
    found = [
        SourceRequest(
            f"bench-{index}",
            start,
            row.prompt_tokens,
            row.output_tokens,
            first_token_ns=_plus(start, row.ttft_ns),
            last_token_ns=_plus(start, row.e2e_ns),
        )
        for index, (start, row) in enumerate(zip(starts, rows, strict=True))
        if not row.failed and row.output_tokens
    ]
    if len(found) < len(rows):
        notes.append(
            f"{len(rows) - len(found):,} of {len(rows):,} requests failed and are left out"
        )
    return Requests(tuple(found), clock) if found else None


def _plus(start: int | None, span: int | None) -> int | None:
    return None if start is None or span is None else start + span


def _starts(
    result: Fields, rows: list[BenchRow], notes: list[str]
) -> tuple[list[int | None], Clock]:
    """The send time of each request in ns, and the clock of these times."""
    starts = [row.start_ns for row in rows]
    if result.rows("start_times"):
        begun = result.number("benchmark_start_time_unix")
        known = [at for at in starts if at is not None]
        if begun is None or not known:
            return starts, "own"
        notes.append("the first request is taken to start with the benchmark")
        zero = round(begun * NS_PER_S) - min(known)
        return [_plus(zero, at) for at in starts], "unix"
    limit = result.get("max_concurrency")
    ends = [row.e2e_ns for row in rows if row.e2e_ns is not None]
    if result.get("request_rate") != "inf" or len(ends) < len(rows):
        notes.append("when the requests were sent is not recorded")
        return starts, "own"
    in_flight: list[int] = []
    found: list[int | None] = []
    for e2e in ends:
        full = isinstance(limit, int) and len(in_flight) >= limit
        start = heapq.heappop(in_flight) if full else 0
        heapq.heappush(in_flight, start + e2e)
        found.append(start)
    notes.append(
        "when the requests were sent is not recorded: each is taken to start when the first of "
        f"{limit or 'all'} in flight has ended"
    )
    return found, "own"
