"""LLMPerf's results: a list of requests (individual_responses), or a summary.

Times are in seconds. Tokens are counted with LLMPerf's own tokenizer.
"""

import re
from typing import Any

from kvsim.readers.description import ClientLoad, Description, Requests, ServerSettings
from kvsim.readers.description import SourceRequest as Request
from kvsim.readers.parsing.fields import Fields, tokens
from kvsim.readers.parsing.reports import left_out, mean_load, statistics
from kvsim.readers.reader import CLIENT, MEASURED, SERVER, STREAM, Sniffed, Source

_FIGURES = {
    "ttft_s": "ttft",
    "inter_token_latency_s": "tpot",  # a mean a request
    "end_to_end_latency_s": "e2e",
}
_QUANTILES = {"p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_HARMLESS = re.compile(
    r"\.(?:p25|p75|min|max|stddev)$|^(?:version|name|timestamp|num_completed_requests_per_min|"
    r"error_\w+|mean_output_throughput_token_per_s|request_output_throughput_token_per_s|"
    r"stddev_\w+|additional_sampling_params)|^\[\]\.(?:error_msg|number_total_tokens|request_\w+)"
)


class LLMPerf(Source):
    """One of LLMPerf's two result files."""

    rank = CLIENT
    what = "a result of LLMPerf"
    gives = SERVER | STREAM | MEASURED
    harmless = _HARMLESS

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise a summary or a request by its keys."""
        value = source.document
        first = value[0] if isinstance(value, list) and value else value
        if not isinstance(first, dict):
            return False
        return {"ttft_s", "end_to_end_latency_s"} <= first.keys() or any(
            str(key).startswith("results_ttft_s") for key in first
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the requests, which have no arrival times, or the means of all requests."""
        if isinstance(source.document, list):
            return _requests(source.document, source)
        return _summary(source.fields())


def _requests(rows: list[Any], source: Sniffed) -> Description:
    found, failed = [], 0
    for at, row in enumerate(rows):
        table = Fields(row, f"{source.name}: request {at}", source.ledger, "[]")
        prompt, output = table.tokens("number_input_tokens"), table.tokens("number_output_tokens")
        if table.get("error_code") or not prompt or not output:
            failed += 1
            continue
        for name in _FIGURES:
            table.number(name)
        found.append(Request(f"request-{at}", None, prompt, output))
    notes = left_out(failed, "failed and are")
    measured = _of_requests(rows)
    if found:
        notes.append("LLMPerf writes down no time at which a request was sent")
    requests = Requests(tuple(found), "own") if found else None
    return Description(requests=requests, measured=measured, notes=tuple(notes))


def _of_requests(rows: list[Any]) -> dict[str, float]:
    """Mean latencies over the requests that have them."""
    found = {}
    for name, figure in _FIGURES.items():
        values = [row[name] for row in rows if isinstance(row, dict) and _is_time(row.get(name))]
        if values:
            found[f"{figure}_mean_s"] = sum(values) / len(values)
    return found


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _summary(report: Fields) -> Description:
    measured: dict[str, float] = {}
    for name, figure in _FIGURES.items():
        prefix = f"results_{name}"
        stats = {f"{prefix}_mean": "mean"}
        stats |= {f"{prefix}_quantiles_{key}": stat for key, stat in _QUANTILES.items()}
        measured |= statistics(report, figure, stats)
    for key in report.items:
        if str(key).startswith("results_") and re.search(r"_(?:p25|p75|min|max|stddev)$", key):
            report.get(key)
    settings = ServerSettings.parse({"served_model_name": report.text("model")}, report.where)
    return Description(settings, load=_load(report), measured=measured)


def _load(report: Fields) -> ClientLoad | None:
    prompt, output = (
        report.number(f"results_number_{kind}_tokens_mean") or report.number(f"mean_{kind}_tokens")
        for kind in ("input", "output")
    )
    count = report.get("results_num_completed_requests")
    users = report.get("num_concurrent_requests")
    return mean_load(
        tokens(count, report.place("results_num_completed_requests")),
        prompt,
        output,
        report.where,
        max_concurrency=users,
    )
