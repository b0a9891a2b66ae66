"""AIPerf's summary (profile_export_aiperf.json): the benchmark's options and its measurements."""

from typing import Any

from kvsim.readers.description import ClientLoad
from kvsim.readers.parsing.fields import Fields, text
from kvsim.readers.parsing.reports import mean_load, seconds_of_ms, statistics

_METRICS = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",  # a mean a request: what others call TPOT
    "request_latency": "e2e",
}
_STATS = {"avg": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}


def asked(summary: Fields) -> dict[str, Any]:
    """The model that the benchmark requested."""
    config = summary.table("input_config")
    names: list[Any] = []
    if isinstance(config.get("models"), dict):  # since 0.10
        items = config.table("models").rows("items")
        names = [item.get("name") for item in items if isinstance(item, dict)]
    endpoint = config.get("endpoint")
    if not names and isinstance(endpoint, dict) and isinstance(endpoint.get("model_names"), list):
        names = endpoint["model_names"]
    model = text(names[0]) if names else None
    return {"served_model_name": model} if model else {}


def figures(summary: Fields) -> dict[str, float]:
    """Latency statistics of the summary, in seconds."""
    found: dict[str, float] = {}
    for metric, figure in _METRICS.items():
        found |= statistics(summary.table(metric), figure, _STATS, seconds_of_ms)
    return found


def load_of(summary: Fields) -> ClientLoad | None:
    """The client's mean load, for results without per-request records."""
    count, prompt, output = (
        summary.table(metric).number("avg")
        for metric in ("request_count", "input_sequence_length", "output_sequence_length")
    )
    config = summary.table("input_config")
    phases = [phase for phase in config.rows("phases") if isinstance(phase, dict)]
    profiling = next((phase for phase in phases if phase.get("kind") == "profiling"), {})
    loadgen = config.table("loadgen")  # before 0.10
    return mean_load(
        round(count or 0),
        prompt,
        output,
        summary.where,
        rate_per_s=profiling.get("rate", loadgen.get("request_rate")),
        max_concurrency=profiling.get("concurrency", loadgen.get("concurrency")),
    )
