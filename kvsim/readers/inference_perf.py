"""inference-perf's reports: requests (per_request_lifecycle_metrics.json), or a stage's summary.

The requests' file holds prompts and answers as well as the times; these are not read.
"""

from typing import Any

from kvsim.readers.description import Description, Requests, SourceRequest
from kvsim.readers.parsing.fields import Fields, nanoseconds
from kvsim.readers.parsing.harmless_keys import REPORTS
from kvsim.readers.parsing.reports import left_out, mean_load, statistics
from kvsim.readers.reader import CLIENT, MEASURED, STREAM, Sniffed, Source

_FIGURES = {
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
    "request_latency": "e2e",
}
_STATS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}


class InferencePerf(Source):
    """One of inference-perf's JSON reports."""

    rank = CLIENT
    what = "a report of inference-perf"
    gives = STREAM | MEASURED
    harmless = REPORTS

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise a report by the keys of a summary or of a request."""
        if source.has_keys("load_summary", "successes"):
            return True
        rows = source.document
        first = rows[0] if isinstance(rows, list) and rows else None
        return isinstance(first, dict) and {"start_time", "end_time", "info"} <= first.keys()

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the requests, or their mean load."""
        if isinstance(source.document, list):
            return _requests(source.document, source)
        return _summary(source.fields())


def _requests(rows: list[Any], source: Sniffed) -> Description:
    found, failed = [], 0
    for index, row in enumerate(rows):
        table = Fields(row, f"{source.name}: request {index}", source.ledger, "[]")
        info = table.table("info")
        times = info.rows("output_token_times")
        output = info.tokens("output_tokens")
        if table.get("error") or not output:
            failed += 1
            continue
        start, prompt = table.nanoseconds("start_time"), info.tokens("input_tokens")
        if times:
            place = info.place("output_token_times")
            first, last = nanoseconds(times[0], place), nanoseconds(times[-1], place)
        else:
            first, last = None, table.nanoseconds("end_time")
        found.append(SourceRequest(f"request-{index}", start, prompt, output, first, last))
    notes = left_out(failed, "failed and are")
    return Description(requests=Requests.in_order(found, "own"), notes=tuple(notes))


def _summary(report: Fields) -> Description:
    load, answered = report.table("load_summary"), report.table("successes")
    latency = answered.table("latency")
    measured: dict[str, float] = {}
    for key, figure in _FIGURES.items():
        table = latency if latency.items else answered  # Prometheus' report has no such table
        measured |= statistics(table.table(key), figure, _STATS)
    if (usage := answered.table("kv_cache_usage_percentage").number("mean")) is not None:
        measured["kv_usage"] = usage / 100
    failures = report.table("failures").get("count")
    notes = [f"{failures:,} requests failed"] if isinstance(failures, int) and failures else []
    count = answered.tokens("count")
    made = mean_load(
        count and (load.tokens("count") or count),
        answered.table("prompt_len").number("mean"),
        answered.table("output_len").number("mean"),
        report.where,
        rate_per_s=load.number("requested_rate") or load.number("achieved_rate") or None,
    )
    return Description(load=made, measured=measured, notes=tuple(notes))
