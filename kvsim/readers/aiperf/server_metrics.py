"""The server's metrics as AIPerf exports them: settings, and gauges over time."""

from collections.abc import Iterator
from math import nan
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import NS_PER_S, GaugeSample, GaugeSeries
from kvsim.readers.parsing.fields import Fields
from kvsim.readers.parsing.prometheus import Metric
from kvsim.readers.vllm.metric_names import GAUGES, PREFIX, add_settings

_THROUGHPUTS = {"prompt_tokens": "prompt", "generation_tokens": "generation"}


def settings_of_series(rows: list[Fields]) -> dict[str, Any]:
    """The engine's settings in the samples' labels; reading stops at the first scrape that has the
    pool.
    """
    found: dict[str, Any] = {}
    for row in rows:
        metrics = row.table("metrics")
        labelled = ((name, sample) for name in metrics.items for sample in metrics.rows(name))
        add_settings(found, (_labels(*each) for each in labelled), row.where)
        if "block_size" in found:
            break
    return found


def settings_of_export(export: Fields) -> dict[str, Any]:
    """The engine's settings in the labels of the aggregated export (server_metrics_export.json)."""
    found: dict[str, Any] = {}
    metrics = export.table("metrics")
    labelled = (
        (name, series) for name in metrics.items for series in metrics.table(name).rows("series")
    )
    add_settings(found, (_labels(*each) for each in labelled), export.where)
    return found


def _labels(name: str, sample: Any) -> Metric:
    """A Metric with a sample's labels, and without a value."""
    labels = sample.get("labels") if isinstance(sample, dict) else None
    table = labels if isinstance(labels, dict) else {}
    return Metric(name, {str(key): str(value) for key, value in table.items()}, nan)


def gauges_of_series(rows: list[Fields], notes: list[str]) -> GaugeSeries | None:
    """The gauges over time of the first endpoint, summed over its engines."""
    endpoint = rows[0].get("endpoint_url") if rows else None
    own = [row for row in rows if row.get("endpoint_url") == endpoint]
    if len(own) < len(rows):
        notes.append(f"{len(rows) - len(own):,} scrapes of further endpoints are left out")
    samples = tuple(_samples(own))
    return GaugeSeries(samples, "unix") if samples else None


def _samples(rows: list[Fields]) -> Iterator[GaugeSample]:
    """One sample per scrape that has gauges, in order of time."""
    newest: int | None = None
    before = (0, dict[str, float]())
    for row in rows:
        time_ns = row.get("timestamp_ns")
        if type(time_ns) is not int:
            raise InputError("not a time", where=row.place("timestamp_ns"), value=time_ns)
        if newest is not None and time_ns <= newest:
            continue
        newest = time_ns
        metrics = row.table("metrics")
        gauges = {
            gauge: _sum(metrics, PREFIX + name)
            for name, gauge in GAUGES.items()
            if PREFIX + name in metrics.items
        }
        totals = _totals(metrics)
        rates = _rates(before, time_ns, totals)
        before = (time_ns, totals)
        if "usage" in gauges:
            gauges["usage"] /= _engines(metrics)
        if gauges:
            yield _sample(time_ns, gauges, rates)


def gauges_of_export(export: Fields, notes: list[str]) -> GaugeSeries | None:
    """The gauges of the aggregated export: the mean over each time slice, with the slice's end as
    its time.
    """
    slices: dict[int, dict[str, float]] = {}
    metrics = export.table("metrics")
    for name, gauge in GAUGES.items():
        for series in metrics.table(PREFIX + name).tables("series")[:1]:  # of the first engine
            for cut in series.tables("timeslices"):
                end, mean = cut.get("end_ns"), cut.number("avg")
                if type(end) is int and mean is not None:
                    slices.setdefault(end, {})[gauge] = mean
    if not slices:
        return None
    notes.append("gauges are means over slices of time")
    samples = (_sample(end, gauges, {}) for end, gauges in sorted(slices.items()))
    return GaugeSeries(tuple(samples), "unix")


def _sample(time_ns: int, gauges: dict[str, float], rates: dict[str, float]) -> GaugeSample:
    usage = gauges.get("usage")
    running, waiting = (
        None if (value := gauges.get(name)) is None or value < 0 else round(value)
        for name in ("running", "waiting")
    )
    share = None if usage is None else min(max(usage, 0.0), 1.0)
    return GaugeSample(
        time_ns, running, waiting, share, rates.get("prompt"), rates.get("generation")
    )


def _engines(metrics: Fields) -> int:
    """The number of engines (data-parallel ranks) that report KV usage."""
    names = (PREFIX + name for name, gauge in GAUGES.items() if gauge == "usage")
    return max(len(metrics.rows(next(name for name in names if name in metrics.items))), 1)


def _totals(metrics: Fields) -> dict[str, float]:
    found = {}
    for name, rate in _THROUGHPUTS.items():
        for full in (f"{PREFIX}{name}_total", PREFIX + name):
            if full in metrics.items:
                found[rate] = _sum(metrics, full)
                break
    return found


def _rates(
    before: tuple[int, dict[str, float]], time_ns: int, totals: dict[str, float]
) -> dict[str, float]:
    """Tokens per second since the previous scrape; left out for a counter that was reset in
    between.
    """
    seconds = (time_ns - before[0]) / NS_PER_S
    return {
        name: (total - before[1][name]) / seconds
        for name, total in totals.items()
        if total >= before[1].get(name, total + 1)
    }


def _sum(metrics: Fields, name: str) -> float:
    return sum(sample.number("value") or 0.0 for sample in metrics.tables(name))
