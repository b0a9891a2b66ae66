"""Properties of every scenario. Every request finishes or has a reason; the ledger's classes sum to
one; times, gaps and queues agree; a fleet's numbers are the sums of its replicas'. Many steps at
once equal single steps to the bit, and the resolved scenario gives the same result.
"""

import json
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from itertools import groupby
from typing import Any

import numpy as np

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.toml import to_toml
from kvsim.results.fleet import FleetSummary
from kvsim.results.result import Result, Run
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from support.outcomes import check_books, check_tokens

MOST_SECONDS = 5  # of a processor, for one small scenario
MOST_ONE_BY_ONE = 60  # idle engines look every millisecond, and none of these looks is left out
WALL = ("wall_s",)
NOTES = (*WALL, "notes")  # which say what keys are given, and a resolved scenario gives all
SUMMED = (
    *("preemptions", "recomputed_tokens", "copied_bytes", "swapped_bytes", "steps"),
    *("prefix_cache.query_tokens", "prefix_cache.hit_tokens", "prefix_cache.host_hit_tokens"),
    *("requests.finished", "requests.rejected"),
)


def check(table: dict[str, Any], guard: Callable[[float], Any] = lambda _: nullcontext()) -> bool:
    """Whether the scenario runs; if it does, check all properties. InputError is no fault.
    guard(seconds): context that limits the CPU seconds of a simulation.
    """
    try:
        simulation = Simulation(Scenario.from_table(table))
        with guard(MOST_SECONDS):
            result = simulation.result()
    except InputError as error:
        if "\n" in str(error):
            raise AssertionError("more than one line") from error
        return False
    check_books(result)
    check_result(result)
    one_by_one = {"max_steps": 1}
    singles = Simulation(Scenario.from_table({**table, **one_by_one}))
    with guard(MOST_ONE_BY_ONE):
        alone = singles.fleet is None and singles.apart is None
        runs = check_tokens(singles) if alone else singles.result().runs
    same(result.runs, runs, "steps at once, and one by one")
    resolved = tomllib.loads(to_toml(json.loads(json.dumps(result.scenario))))
    with guard(MOST_SECONDS):
        again = Simulation(Scenario.from_table(resolved)).result()
    same(result.runs, again.runs, "the resolved scenario", but=NOTES)
    for fleet, other in zip(result.fleets, again.fleets, strict=True):
        assert _numbers(fleet, NOTES) == _numbers(other, NOTES), "the resolved fleet"
    return True


def check_result(result: Result) -> None:
    """Check the properties of one result: of each run, and of fleets over their replicas."""
    for run in result.runs:
        _check_run(run)
    if not result.fleets:
        for run in result.runs:
            counts = run.summary["requests"]
            assert counts["finished"] + counts["rejected"] == counts["submitted"], counts
    own = [run for run in result.runs if run.summary.get("pool_of") != "prefill"]
    labels = [fleet.label for fleet in result.fleets]
    by_fleet = {label: list(runs) for label, runs in groupby(own, lambda run: _fleet(run, labels))}
    for fleet in result.fleets:
        _check_fleet(fleet, by_fleet[fleet.label])


def _fleet(run: Run, labels: list[str]) -> str:
    """Label of the fleet to which the replica of a run belongs."""
    found = [label for label in labels if run.label == label or run.label.startswith(f"{label} #")]
    return max(found, key=len, default="")


def _check_run(run: Run) -> None:
    memory = run.summary["memory"]
    for mean in ("time_mean", "step_mean"):
        shares = list(memory[mean].values())
        assert abs(sum(shares) - 1) < 1e-9, (mean, sum(shares))
        assert min(shares) >= 0, (mean, shares)
    for peak in ("peak_used", "peak_allocated"):
        assert 0 <= memory[peak] <= 1, (peak, memory[peak])
    cache = run.summary["prefix_cache"]
    assert cache["hit_tokens"] <= cache["query_tokens"], cache
    assert (cache["host_hit_tokens"] or 0) <= cache["query_tokens"], cache
    _check_requests(run)
    rows = run.memory
    assert (rows.filter(like="_bytes").to_numpy() >= 0).all(), run.label


def _check_requests(run: Run) -> None:
    """Each row of the table: a reason or moments in order, and no more found than computed."""
    rows, counts = run.requests, run.summary["requests"]
    refused = rows[rows.status == "rejected"]
    assert refused.reason.notna().all()
    assert len(refused) == counts["rejected"], (len(refused), counts)
    done = rows[rows.status == "finished"]
    assert done.reason.isna().all()
    moments = done[["arrival_ps", "scheduled_ps", "first_token_ps", "finish_ps"]]
    if (done.output_tokens == 0).any():  # a prompt alone has no first token
        moments = moments.drop(columns="first_token_ps")
    assert (np.diff(moments.to_numpy(), axis=1) >= 0).all(), run.label
    assert (done.cached_tokens <= done.prompt_tokens).all()
    assert (done.cached_tokens >= 0).all()
    if "host_cached_tokens" in rows:
        loaded = done.host_cached_tokens + done.storage_cached_tokens
        assert (loaded <= done.cached_tokens).all(), run.label
        for name in ("host_cached_tokens", "storage_cached_tokens", "load_wait_ps", "recompute_ps"):
            assert (rows[name] >= 0).all(), (run.label, name)


def _check_fleet(fleet: FleetSummary, runs: list[Run]) -> None:
    for key in SUMMED:
        whole = _at(fleet, key)
        parts = [_at(run.summary, key) or 0 for run in runs]
        assert (whole or 0) == sum(parts), (fleet.label, key, whole, parts)
    counts = fleet.requests
    assert counts.finished + counts.rejected == counts.submitted, counts
    assert fleet.replicas == len(runs)
    assert abs(sum(fleet.memory.time_mean.values()) - 1) < 1e-9
    assert abs(sum(fleet.memory.step_mean.values()) - 1) < 1e-9


def _at(summary: Any, key: str) -> Any:
    for name in key.split("."):
        summary = summary[name]
    return summary


def _numbers(summary: Any, but: tuple[str, ...] = WALL) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key not in but}


def same(runs: Any, others: Any, what: str, but: tuple[str, ...] = WALL) -> None:
    """The runs have the same requests, and the same summaries `but` for these keys."""
    for run, other in zip(runs, others, strict=True):
        numbers, theirs = _numbers(run.summary, but), _numbers(other.summary, but)
        moved = [key for key in numbers if numbers[key] != theirs[key]]
        assert not moved, (what, run.label, moved[0], numbers[moved[0]], theirs[moved[0]])
        assert run.requests.equals(other.requests), (what, run.label, "requests")
