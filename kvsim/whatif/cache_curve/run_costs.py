"""Costs of a run for the JSON answers of `kvsim cache`."""

from typing import Any

from kvsim.results.summary import RunSummary


def run_costs(summary: RunSummary) -> dict[str, Any]:
    """Preemptions, throughput and latencies of a run."""
    names = ("preemptions", "requests_per_s", "ttft_s", "e2e_s")
    table = summary.as_json()
    return {name: table[name] for name in names}
