"""AIPerf's summary (profile_export_aiperf.json): what was asked of it, and what it measured."""

from typing import Any

from kvsim.readers.description import ClientLoad
from kvsim.readers.parsing import fields

_METRICS = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",  # a mean a request: what others call TPOT
    "request_latency": "e2e",
}
_STATS = {"avg": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}


def asked(summary: dict[str, Any], where: str) -> dict[str, Any]:
    """Whose model it asked for."""
    config = fields.table(summary.get("input_config"), f"{where}: input_config")
    names: list[Any] = []
    models = config.get("models")  # since 0.10
    if isinstance(models, dict):
        items = fields.rows(models.get("items"), f"{where}: models")
        names = [item.get("name") for item in items if isinstance(item, dict)]
    endpoint = config.get("endpoint")
    if not names and isinstance(endpoint, dict) and isinstance(endpoint.get("model_names"), list):
        names = endpoint["model_names"]
    model = fields.text(names[0]) if names else None
    return {"served_model_name": model} if model else {}


def figures(summary: dict[str, Any], where: str) -> dict[str, float]:
    """Its latencies, in seconds."""
    found = {}
    for metric, figure in _METRICS.items():
        table = fields.table(summary.get(metric), f"{where}: {metric}")
        for stat, name in _STATS.items():
            value = fields.number(table, stat, f"{where}: {metric}")
            if value is not None:
                found[f"{figure}_{name}_s"] = value / 1000
    return found


def load_of(summary: dict[str, Any], where: str) -> ClientLoad | None:
    """What it did on average, for where its records were not kept."""

    def mean(metric: str) -> float | None:
        return fields.number(fields.table(summary.get(metric), where), "avg", f"{where}: {metric}")

    count, prompt = mean("request_count"), mean("input_sequence_length")
    output = mean("output_sequence_length")
    if not count or not prompt or not output:
        return None
    config = fields.table(summary.get("input_config"), f"{where}: input_config")
    phases = fields.rows(config.get("phases"), f"{where}: phases")
    told = next(
        (each for each in phases if isinstance(each, dict) and each.get("kind") == "profiling"), {}
    )
    loadgen = fields.table(config.get("loadgen"), f"{where}: loadgen")  # before 0.10
    rate = told.get("rate", loadgen.get("request_rate"))
    concurrency = told.get("concurrency", loadgen.get("concurrency"))
    return ClientLoad.parse(
        {
            "num_requests": round(count),
            "prompt_tokens": prompt,
            "output_tokens": output,
            "rate_per_s": rate,
            "max_concurrency": concurrency,
        },
        where,
    )
