"""GuideLLM's report (`--output-path benchmarks.json`): a benchmark each load, requests in each.

Requests keep their prompts in this file; they are not looked at. Older reports (before 0.4) have
flat times, newer ones nested timings.
"""

from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import ClientLoad, Description, Requests, Settings, SourceRequest
from kvsim.readers.parsing import fields
from kvsim.readers.reader import CLIENT, MEASURED, SERVER, STREAM, Sniffed, Source

_FIGURES = {
    "time_to_first_token_ms": ("ttft", 1e-3),
    "inter_token_latency_ms": ("itl", 1e-3),
    "request_latency": ("e2e", 1.0),
}
_STATS = {"mean": "mean", "median": "p50"}
_SHARES = {"p90": "p90", "p95": "p95", "p99": "p99"}


class GuideLLM(Source):
    """A report with one benchmark; of a sweep the requests of each are their own run."""

    rank = CLIENT
    what = "a GuideLLM report"
    gives = SERVER | STREAM | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """By its benchmarks, which have requests by status."""
        if not source.has_keys("benchmarks"):
            return False
        benchmarks = source.document["benchmarks"]
        first = benchmarks[0] if isinstance(benchmarks, list) and benchmarks else None
        return isinstance(first, dict) and {"metrics", "requests"} <= first.keys()

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Its only benchmark, or of several the last, and says so."""
        report, where = source.object(), source.name
        benchmarks = fields.rows(report["benchmarks"], f"{where}: benchmarks")
        notes: list[str] = []
        if len(benchmarks) > 1:
            notes.append(f"{len(benchmarks)} benchmarks: the last one is taken")
        benchmark = fields.table(benchmarks[-1], f"{where}: benchmarks")
        by_status = fields.table(benchmark.get("requests"), f"{where}: requests")
        answered = fields.rows(by_status.get("successful"), f"{where}: successful")
        lost = sum(
            len(fields.rows(by_status.get(status), f"{where}: {status}"))
            for status in ("errored", "incomplete")
        )
        if lost:
            notes.append(f"{lost:,} requests failed or were cut off and are left out")
        rows = [_request(row, f"{where}: request {at}") for at, row in enumerate(answered)]
        rows.sort(key=lambda row: row.arrival_ns or 0)
        metrics = fields.table(benchmark.get("metrics"), f"{where}: metrics")
        return Description(
            Settings.parse(_settings(report, benchmark), where),
            requests=Requests(tuple(rows), "unix") if rows else None,
            load=_load(benchmark, metrics, where),
            measured=_measured(metrics, where),
            notes=tuple(notes),
        )


def _settings(report: dict[str, Any], benchmark: dict[str, Any]) -> dict[str, Any]:
    for holder in (benchmark, report):
        for path in (("config", "backend", "model"), ("config", "spec", "backend", "model"),
                     ("args", "model"), ("args", "backend_model")):  # fmt: skip
            place: Any = holder
            for key in path:
                place = place.get(key) if isinstance(place, dict) else None
            if fields.text(place):
                return {"served_model_name": place}
    return {}


def _request(row: Any, where: str) -> SourceRequest:
    table = fields.table(row, where)
    info = fields.table(table.get("info"), f"{where}: info")
    timings = fields.table(info.get("timings"), f"{where}: timings")

    def moment(*names: str) -> int | None:
        for name in names:
            for holder in (timings, table):
                if holder.get(name) is not None:
                    return fields.nanoseconds(holder[name], f"{where}: {name}")
        return None

    start = moment("request_start", "resolve_start", "request_start_time", "start_time")
    return SourceRequest(
        str(table.get("request_id") or where),
        start,
        fields.tokens(_tokens(table, "prompt_tokens", "input_metrics"), where),
        fields.tokens(_tokens(table, "output_tokens", "output_metrics"), where),
        moment("first_token_iteration", "first_iteration", "first_token_time"),
        moment("last_token_iteration", "last_iteration", "last_token_time", "request_end",
               "request_end_time", "end_time"),
        session=fields.text(info.get("conversation_id")),
    )  # fmt: skip


def _tokens(table: dict[str, Any], flat: str, nested: str) -> Any:
    if table.get(flat) is not None:
        return table[flat]
    metrics = table.get(nested)
    if not isinstance(metrics, dict):
        return None
    total = metrics.get("total_tokens")
    return metrics.get("text_tokens") if total is None else total


def _measured(metrics: dict[str, Any], where: str) -> dict[str, float]:
    found = {}
    for metric, (figure, scale) in _FIGURES.items():
        table = fields.table(metrics.get(metric), f"{where}: {metric}")
        told = fields.table(table.get("successful"), f"{where}: {metric}")
        if not told.get("count", 1):
            continue
        shares = fields.table(told.get("percentiles"), f"{where}: {metric}")
        for names, holder in ((_STATS, told), (_SHARES, shares)):
            for key, stat in names.items():
                value = fields.number(holder, key, f"{where}: {metric}")
                if value is not None:
                    found[f"{figure}_{stat}_s"] = value * scale
    return found


def _load(benchmark: dict[str, Any], metrics: dict[str, Any], where: str) -> ClientLoad | None:
    """The benchmark's means, where its requests were not kept."""
    totals = fields.table(metrics.get("request_totals"), f"{where}: request_totals")
    count = fields.tokens(totals.get("successful"), f"{where}: request_totals")
    means = []
    for metric in ("prompt_token_count", "output_token_count"):
        told = fields.table(metrics.get(metric), f"{where}: {metric}")
        means.append(
            fields.number(fields.table(told.get("successful"), f"{where}: {metric}"), "mean", where)
        )
    prompt, output = means
    if not count or not prompt or not output:
        return None
    config = fields.table(benchmark.get("config"), f"{where}: config")
    strategy = fields.table(config.get("strategy"), f"{where}: strategy")
    kind = str(strategy.get("type_"))
    rate = strategy.get("rate") if kind in ("constant", "poisson", "async") else None
    streams = strategy.get("streams") if kind == "concurrent" else None
    if kind == "synchronous":
        streams = 1
    if isinstance(rate, str):
        raise InputError("not a rate", where=f"{where}: strategy", value=rate)
    return ClientLoad.parse(
        {
            "num_requests": count,
            "prompt_tokens": prompt,
            "output_tokens": output,
            "rate_per_s": rate,
            "max_concurrency": streams,
        },
        where,
    )
