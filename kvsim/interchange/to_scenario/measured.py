"""Measurements found in the sources, under the keys of a simulated run's summary."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from kvsim.observed.rows import ObservedRequest, Tick
from kvsim.plumbing.units import PS_PER_S
from kvsim.readers.description import ClientLoad
from kvsim.readers.detect import Read
from kvsim.readers.reader import CLIENT
from kvsim.results.latency import e2e, spread, tpot, ttft
from kvsim.results.measured import LATENCIES, STATISTICS, MeasuredSummary

_LONGEST_S = 9e6  # 104 days: picoseconds of more do not fit 64 bits, and no benchmark ran so long
_FEWEST = 2  # requests whose latencies have a spread


def measured_of(
    reads: Sequence[Read],
    load: ClientLoad | None,
    rows: Sequence[ObservedRequest],
    ticks: Sequence[Tick],
) -> MeasuredSummary | None:
    """The measured figures of all sources; None if there are none.

    A client's figures take precedence over those of the server's metrics, which cover all its
    requests. A reported figure takes precedence over one computed from single requests. rows has
    the requests with complete times.
    """
    ordered = sorted(reads, key=lambda read: read.rank != CLIENT)
    figures: dict[str, float] = {}
    sources: list[str] = []
    for read in ordered:
        new = {k: v for k, v in read.description.measured.items() if k not in figures}
        if new and _of_a_run(new):
            figures |= new
            sources.append(read.name)
    table: dict[str, Any] = _plain(figures, load) | _latencies(figures)
    for key, spreads in _of_rows(rows).items():
        own = table.setdefault(key, dict.fromkeys(STATISTICS))
        table[key] = {name: spreads[name] if own[name] is None else own[name] for name in own}
    if rows and "makespan_s" not in table:
        table |= _totals(rows)
    table |= _gauges(ticks)
    if not table or table.keys() == {"requests"}:
        return None
    if not sources:
        sources = [read.name for read in reads if read.description.requests is not None]
    return MeasuredSummary.parse({"source": ", ".join(sources) or "gauges"} | table, "measured")


def _of_a_run(figures: Iterable[str]) -> bool:
    """Whether the figures include latencies or throughput, and not only those of tiers or links."""
    return any(
        name.startswith(("ttft_", "tpot_", "itl_", "e2e_", "duration_", "output_tokens_per_"))
        for name in figures
    )


def _plain(figures: Mapping[str, float], load: ClientLoad | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if load is not None:
        found["requests"] = {"finished": load.num_requests}
    seconds = figures.get("duration_s")
    if seconds:
        found["makespan_s"] = seconds
        if load is not None:
            found["requests_per_s"] = load.num_requests / seconds
            found["output_tokens_per_s"] = load.num_requests * load.output_tokens / seconds
    for name in ("requests_per_s", "output_tokens_per_s"):
        if name in figures:
            found[name] = figures[name]
    return found


def _latencies(figures: Mapping[str, float]) -> dict[str, dict[str, float | None]]:
    found = {}
    for key in LATENCIES:
        own = {name: figures.get(f"{key.removesuffix('_s')}_{name}_s") for name in STATISTICS}
        if any(value is not None for value in own.values()):
            found[key] = own
    return found


def _of_rows(rows: Sequence[ObservedRequest]) -> dict[str, dict[str, float]]:
    """Statistics of latencies computed from single requests, as `kvsim.results.latency` defines
    them.
    """
    times = ("arrival_s", "first_token_s", "last_token_s")
    longest_s = max((abs(getattr(row, name)) for row in rows for name in times), default=0.0)
    if len(rows) < _FEWEST or longest_s > _LONGEST_S:
        return {}
    arrival, first, last = (
        np.array([round(getattr(row, name) * PS_PER_S) for row in rows], dtype=np.int64)
        for name in times
    )
    output = np.array([row.output_tokens for row in rows], dtype=np.int64)
    found = {
        "ttft_s": spread(ttft(arrival, first) / PS_PER_S),
        "tpot_s": spread(tpot(first, last, output) / PS_PER_S),
        "e2e_s": spread(e2e(arrival, last) / PS_PER_S),
    }
    return {key: each for key, each in found.items() if each}


def _totals(rows: Sequence[ObservedRequest]) -> dict[str, Any]:
    seconds = max(row.last_token_s for row in rows)
    found: dict[str, Any] = {"requests": {"finished": len(rows)}, "makespan_s": seconds}
    if seconds:
        found["requests_per_s"] = len(rows) / seconds
        found["output_tokens_per_s"] = sum(row.output_tokens for row in rows) / seconds
    return found


def _gauges(ticks: Sequence[Tick]) -> dict[str, Any]:
    """Means over the gauge samples, which are evenly spaced."""
    running = [tick.running for tick in ticks if tick.running is not None]
    waiting = [tick.waiting for tick in ticks if tick.waiting is not None]
    usage = [tick.kv_cache_pct / 100 for tick in ticks if tick.kv_cache_pct is not None]
    found: dict[str, Any] = {}
    if running:
        found["running_mean"] = fmean(running)
    if waiting:
        found["waiting_mean"] = fmean(waiting)
    if usage:
        found["kv_usage"] = {"mean": fmean(usage), "peak": max(usage)}
    return found
