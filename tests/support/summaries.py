"""Made-up summaries of runs, for tests of reports."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from kvsim.memory.ledger import CLASSES
from kvsim.results.result import Run
from kvsim.results.result_summary import ResultSummary
from kvsim.results.summary import RunSummary

_WAITS = dict.fromkeys(("mean", "p50", "p90", "p95", "p99"), 1.0)
_SHARES = dict.fromkeys(CLASSES, 0.0) | {"idle": 1.0}
_RUN: dict[str, Any] = {
    "allocator": "paged",
    "label": "paged",
    "requests": {"submitted": 1000, "finished": 1000, "rejected": 0},
    "preemptions": 0,
    "makespan_s": 1.0,
    "requests_per_s": 1000.0,
    "output_tokens_per_s": 1000.0,
    "running_mean": 1.0,
    **dict.fromkeys(("ttft_s", "tpot_s", "itl_s", "e2e_s"), _WAITS),
    "memory": {
        "capacity_bytes": 12 << 30,
        "capacity_tokens": 15728,
        "time_mean": _SHARES,
        "step_mean": _SHARES,
        "peak_used": 1.0,
        "peak_allocated": 1.0,
    },
    "prefix_cache": {"query_tokens": 0, "hit_tokens": 0},
    **dict.fromkeys(("copied_bytes", "recomputed_tokens", "swapped_bytes"), 0),
    "steps": 1,
    "wall_s": 0.1,
}


def run_summary(given: Mapping[str, Any]) -> RunSummary:
    """The summary with these numbers, as summary.json would hold them, and others where none is
    given.
    """
    run = _over(_RUN, given)
    contents = {"kvsim": "0", "scenario": {}, "runs": [run]}
    return ResultSummary.parse(contents, "a test's summary").runs[0]


def bare_run(given: Mapping[str, Any]) -> Run:
    """A run without tables."""
    summary = run_summary(given)
    return Run(summary.label, summary.allocator, summary, {})


def _over(table: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    made = {**deepcopy(dict(table)), **given}
    for key, value in given.items():
        if isinstance(value, dict) and isinstance(table.get(key), dict) and key != "window":
            made[key] = _over(table[key], value)
    return made
