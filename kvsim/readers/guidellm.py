"""GuideLLM's report (`--output-path benchmarks.json`): one benchmark per load, with its requests.

The file contains the prompts, which are not read. Older reports (before 0.4) have flat times, newer
ones nested timings.
"""

from collections.abc import Callable
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import (
    ClientLoad,
    Description,
    Requests,
    ServerSettings,
    SourceRequest,
)
from kvsim.readers.parsing.fields import Fields, text, tokens
from kvsim.readers.parsing.harmless_keys import REPORTS
from kvsim.readers.parsing.reports import left_out, mean_load, statistics
from kvsim.readers.reader import CLIENT, MEASURED, SERVER, STREAM, Sniffed, Source

_FIGURES: dict[str, tuple[str, Callable[[float], float]]] = {
    "time_to_first_token_ms": ("ttft", lambda ms: ms * 1e-3),
    "inter_token_latency_ms": ("itl", lambda ms: ms * 1e-3),
    "request_latency": ("e2e", float),
}
_STATS = {"mean": "mean", "median": "p50"}
_PERCENTILES = {"p90": "p90", "p95": "p95", "p99": "p99"}
_MODELS = (
    *(("config", "backend", "model"), ("config", "spec", "backend", "model")),
    *(("args", "model"), ("args", "backend_model")),
)


class GuideLLM(Source):
    """A report with one benchmark. In a sweep each benchmark's requests are a run of their own."""

    rank = CLIENT
    what = "a GuideLLM report"
    gives = SERVER | STREAM | MEASURED
    harmless = REPORTS

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the report by its list of benchmarks, with requests by status."""
        if not source.has_keys("benchmarks"):
            return False
        benchmarks = source.document["benchmarks"]
        first = benchmarks[0] if isinstance(benchmarks, list) and benchmarks else None
        return isinstance(first, dict) and {"metrics", "requests"} <= first.keys()

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the only benchmark, or of several the last, with a note."""
        report, where = source.fields(), source.name
        benchmarks = report.tables("benchmarks")
        notes: list[str] = []
        if len(benchmarks) > 1:
            notes.append(f"{len(benchmarks)} benchmarks: the last one is taken")
        benchmark = benchmarks[-1]
        requests, metrics = benchmark.table("requests"), benchmark.table("metrics")
        answered = requests.rows("successful")
        lost = sum(len(requests.rows(status)) for status in ("errored", "incomplete"))
        notes += left_out(lost, "failed or were cut off and are")
        rows = [
            _request(Fields(row, f"{where}: request {at}", source.ledger, "request[]"))
            for at, row in enumerate(answered)
        ]
        return Description(
            ServerSettings.parse({"served_model_name": _model(benchmark) or _model(report)}, where),
            requests=Requests.in_order(rows, "unix"),
            load=_load(benchmark, metrics),
            measured=_measured(metrics),
            notes=tuple(notes),
        )


def _model(holder: Fields) -> str | None:
    for path in _MODELS:
        place: Any = holder.items
        for key in path:
            place = place.get(key) if isinstance(place, dict) else None
        if text(place):
            return text(place)
    return None


def _request(table: Fields) -> SourceRequest:
    info = table.table("info")
    timings = info.table("timings")

    def moment(*names: str) -> int | None:
        for name in names:
            for holder in (timings, table):
                if holder.get(name) is not None:
                    return holder.nanoseconds(name)
        return None

    start = moment("request_start", "resolve_start", "request_start_time", "start_time")
    return SourceRequest(
        str(table.get("request_id") or table.where),
        start,
        tokens(_tokens(table, "prompt_tokens", "input_metrics"), table.where),
        tokens(_tokens(table, "output_tokens", "output_metrics"), table.where),
        moment("first_token_iteration", "first_iteration", "first_token_time"),
        moment("last_token_iteration", "last_iteration", "last_token_time", "request_end",
               "request_end_time", "end_time"),
        session=info.text("conversation_id"),
    )  # fmt: skip


def _tokens(table: Fields, flat: str, nested: str) -> Any:
    if table.get(flat) is not None:
        return table.get(flat)
    metrics = table.get(nested)
    if not isinstance(metrics, dict):
        return None
    total = metrics.get("total_tokens")
    return metrics.get("text_tokens") if total is None else total


def _measured(metrics: Fields) -> dict[str, float]:
    found: dict[str, float] = {}
    for metric, (figure, in_s) in _FIGURES.items():
        answered = metrics.table(metric).table("successful")
        if answered.get("count", 1):
            found |= statistics(answered, figure, _STATS, in_s)
            found |= statistics(answered.table("percentiles"), figure, _PERCENTILES, in_s)
    return found


def _load(benchmark: Fields, metrics: Fields) -> ClientLoad | None:
    """The benchmark's mean load, if its requests were not recorded."""
    prompt, output = (
        metrics.table(metric).table("successful").number("mean")
        for metric in ("prompt_token_count", "output_token_count")
    )
    strategy = benchmark.table("config").table("strategy")
    kind = str(strategy.get("type_"))
    rate = strategy.get("rate") if kind in ("constant", "poisson", "async") else None
    streams = strategy.get("streams") if kind == "concurrent" else None
    if isinstance(rate, str):
        raise InputError("not a rate", where=strategy.where, value=rate)
    return mean_load(
        metrics.table("request_totals").tokens("successful"),
        prompt,
        output,
        benchmark.where,
        rate_per_s=rate,
        max_concurrency=1 if kind == "synchronous" else streams,
    )
