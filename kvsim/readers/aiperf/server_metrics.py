"""The server's metrics as AIPerf exports them: settings, and gauges over time."""

from collections.abc import Iterable
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import NS_PER_S, GaugeSample, GaugeSeries
from kvsim.readers.parsing import fields
from kvsim.readers.vllm.metric_names import GAUGES, INFO, PREFIX, cache_settings

_THROUGHPUTS = {"prompt_tokens": "prompt", "generation_tokens": "generation"}
Rows = list[tuple[str, dict[str, Any]]]


def settings_of_series(rows: Rows) -> dict[str, Any]:
    """What the samples' labels say of the engine."""
    found: dict[str, Any] = {}
    for where, row in rows:
        metrics = fields.table(row.get("metrics"), f"{where}: metrics")
        for name, samples in metrics.items():
            _take(found, name, (_labels(each) for each in fields.rows(samples, where)), where)
        if "block_size" in found:
            break
    return found


def settings_of_export(export: dict[str, Any], where: str) -> dict[str, Any]:
    """The same of the summed-up export."""
    found: dict[str, Any] = {}
    for name, metric in fields.table(export.get("metrics"), f"{where}: metrics").items():
        series = fields.rows(fields.table(metric, where).get("series"), f"{where}: {name}")
        _take(found, name, (_labels(each) for each in series), where)
    return found


def _take(found: dict[str, Any], name: str, labels: Iterable[dict[str, str]], where: str) -> None:
    if not name.startswith(PREFIX):
        return
    for each in labels:
        found["engine"] = "vllm"
        if "model_name" in each:
            found.setdefault("served_model_name", each["model_name"])
        if name.removeprefix(PREFIX) == INFO:
            found |= cache_settings(each, where)


def _labels(sample: Any) -> dict[str, str]:
    labels = sample.get("labels") if isinstance(sample, dict) else None
    return {str(k): str(v) for k, v in labels.items()} if isinstance(labels, dict) else {}


def curve_of(rows: Rows, notes: list[str]) -> GaugeSeries | None:
    """The gauges over time: of the first endpoint, and summed over its engines."""
    samples: list[GaugeSample] = []
    endpoint: Any = None
    others = 0
    before: tuple[int, dict[str, float]] | None = None
    for where, row in rows:
        endpoint = row.get("endpoint_url") if endpoint is None else endpoint
        if row.get("endpoint_url") != endpoint:
            others += 1
            continue
        time_ns = row.get("timestamp_ns")
        if type(time_ns) is not int:
            raise InputError("not a time", where=f"{where}: timestamp_ns", value=time_ns)
        if samples and time_ns <= samples[-1].time_ns:
            continue
        metrics = fields.table(row.get("metrics"), f"{where}: metrics")
        gauges = {name: _sum(metrics, PREFIX + metric, where) for metric, name in GAUGES.items()
                  if PREFIX + metric in metrics}  # fmt: skip
        totals = _totals(metrics, where)
        rates = _rates(before, time_ns, totals)
        before = (time_ns, totals)
        if not gauges:
            continue
        usage = gauges.get("usage")
        if usage is not None:
            usage /= max(len(metrics[_usage_name(metrics)]), 1)  # a mean over engines
        samples.append(
            GaugeSample(
                time_ns,
                _count(gauges.get("running")),
                _count(gauges.get("waiting")),
                None if usage is None else min(max(usage, 0.0), 1.0),
                rates.get("prompt"),
                rates.get("generation"),
            )
        )
    if others:
        notes.append(f"{others:,} scrapes of further endpoints are left out")
    return GaugeSeries(tuple(samples), "unix") if samples else None


def curve_of_export(export: dict[str, Any], where: str, notes: list[str]) -> GaugeSeries | None:
    """The gauges of the summed-up export: means over its slices of time, at the end of each."""
    slices: dict[int, dict[str, float]] = {}
    metrics = fields.table(export.get("metrics"), f"{where}: metrics")
    for metric, gauge in GAUGES.items():
        table = fields.table(metrics.get(PREFIX + metric), f"{where}: {metric}")
        series = fields.rows(table.get("series"), f"{where}: {metric}")
        for each in series[:1]:  # of the first endpoint and engine
            for cut in fields.rows(fields.table(each, where).get("timeslices"), where):
                told = fields.table(cut, f"{where}: timeslices")
                end, mean = told.get("end_ns"), fields.number(told, "avg", f"{where}: {metric}")
                if type(end) is int and mean is not None:
                    slices.setdefault(end, {})[gauge] = mean
    if not slices:
        return None
    notes.append("gauges are means over slices of time")
    samples = [
        GaugeSample(
            end,
            _count(gauges.get("running")),
            _count(gauges.get("waiting")),
            None if "usage" not in gauges else min(max(gauges["usage"], 0.0), 1.0),
        )
        for end, gauges in sorted(slices.items())
    ]
    return GaugeSeries(tuple(samples), "unix")


def _usage_name(metrics: dict[str, Any]) -> str:
    names = (PREFIX + metric for metric, name in GAUGES.items() if name == "usage")
    return next(name for name in names if name in metrics)


def _totals(metrics: dict[str, Any], where: str) -> dict[str, float]:
    found = {}
    for metric, name in _THROUGHPUTS.items():
        for full in (f"{PREFIX}{metric}_total", PREFIX + metric):
            if full in metrics:
                found[name] = _sum(metrics, full, where)
                break
    return found


def _rates(
    before: tuple[int, dict[str, float]] | None, time_ns: int, totals: dict[str, float]
) -> dict[str, float]:
    """Tokens a second since the scrape before; none where a counter began anew."""
    if before is None:
        return {}
    seconds = (time_ns - before[0]) / NS_PER_S
    return {
        name: (total - before[1][name]) / seconds
        for name, total in totals.items()
        if total >= before[1].get(name, total + 1)
    }


def _sum(metrics: dict[str, Any], name: str, where: str) -> float:
    samples = fields.rows(metrics[name], f"{where}: {name}")
    tables = [fields.table(each, f"{where}: {name}") for each in samples]
    return sum(fields.number(each, "value", f"{where}: {name}") or 0.0 for each in tables)


def _count(value: float | None) -> int | None:
    return None if value is None or value < 0 else round(value)
