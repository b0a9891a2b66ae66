"""inference-perf's reports: requests (per_request_lifecycle_metrics.json), or a stage's summary.

The requests' file holds prompts and answers beside the times; they are not looked at.
"""

from typing import Any

from kvsim.readers.description import ClientLoad, Description, Requests, Settings, SourceRequest
from kvsim.readers.parsing import fields
from kvsim.readers.reader import CLIENT, MEASURED, STREAM, Sniffed, Source

_FIGURES = {
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
    "request_latency": "e2e",
}
_STATS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}


class InferencePerf(Source):
    """One of its JSON files."""

    rank = CLIENT
    what = "a report of inference-perf"
    gives = STREAM | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """By the keys of a summary, or of a request."""
        if source.has_keys("load_summary", "successes"):
            return True
        rows = source.document
        first = rows[0] if isinstance(rows, list) and rows else None
        return isinstance(first, dict) and {"start_time", "end_time", "info"} <= first.keys()

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Requests, or what they were on average."""
        if isinstance(source.document, list):
            return _requests(source.document, source.name)
        return _summary(source.object(), source.name)


def _requests(rows: list[Any], where: str) -> Description:
    found, failed = [], 0
    for index, row in enumerate(rows):
        place = f"{where}: request {index}"
        table = fields.table(row, place)
        info = fields.table(table.get("info"), f"{place}: info")
        times = fields.rows(info.get("output_token_times"), f"{place}: output_token_times")
        output = fields.tokens(info.get("output_tokens"), f"{place}: output_tokens")
        if table.get("error") or not output:
            failed += 1
            continue
        end = table.get("end_time") if not times else times[-1]
        found.append(
            SourceRequest(
                f"request-{index}",
                fields.nanoseconds(table.get("start_time"), f"{place}: start_time"),
                fields.tokens(info.get("input_tokens"), f"{place}: input_tokens"),
                output,
                fields.nanoseconds(times[0] if times else None, f"{place}: output_token_times"),
                fields.nanoseconds(end, f"{place}: end_time"),
            )
        )
    found.sort(key=lambda each: each.arrival_ns or 0)
    notes = (f"{failed:,} requests failed and are left out",) if failed else ()
    return Description(requests=Requests(tuple(found)) if found else None, notes=notes)


def _summary(report: dict[str, Any], where: str) -> Description:
    load = fields.table(report["load_summary"], f"{where}: load_summary")
    answered = fields.table(report["successes"], f"{where}: successes")
    count = fields.tokens(answered.get("count"), f"{where}: successes")
    latency = fields.table(answered.get("latency"), f"{where}: latency")
    measured = {}
    for key, figure in _FIGURES.items():
        table = fields.table(latency.get(key), f"{where}: {key}")
        for stat, name in _STATS.items():
            value = fields.number(table, stat, f"{where}: {key}")
            if value is not None:
                measured[f"{figure}_{name}_s"] = value
    failures = fields.table(report.get("failures"), f"{where}: failures").get("count")
    notes = [f"{failures:,} requests failed"] if isinstance(failures, int) and failures else []
    means = [
        fields.number(fields.table(answered.get(key), f"{where}: {key}"), "mean", where)
        for key in ("prompt_len", "output_len")
    ]
    if not count or not all(means):
        return Description(measured=measured, notes=tuple(notes))
    rate = fields.number(load, "requested_rate", where)
    made = ClientLoad.parse(
        {
            "num_requests": fields.tokens(load.get("count"), where) or count,
            "prompt_tokens": means[0],
            "output_tokens": means[1],
            "rate_per_s": rate or fields.number(load, "achieved_rate", where) or None,
        },
        where,
    )
    return Description(Settings(), load=made, measured=measured, notes=tuple(notes))
