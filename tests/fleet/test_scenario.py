"""`[fleet]` in a scenario: results of each replica and of all, sweeps, and what is refused."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from support.scenarios import steady

from kvsim.plumbing.errors import InputError
from kvsim.report.page import make_page
from kvsim.report.words import paragraphs
from kvsim.results import store
from kvsim.results.result import Result
from kvsim.simulation import simulate
from kvsim.whatif.task import make_task, run_task


def table(fleet: dict[str, Any] | None, count: int = 80, **changes: Any) -> dict[str, Any]:
    found = steady(count)
    found["allocator"] = [{"kind": "paged"}]
    found.update(changes)
    return found if fleet is None else {**found, "fleet": fleet}


@pytest.fixture(scope="module")
def served() -> Result:
    fleet = {
        "replicas": 3,
        "router": {"kind": "least-requests"},
        "price_per_gpu_hour": 2.0,
        "objectives": {"ttft_s": 0.1},
    }
    return simulate(table(fleet))


def without_time(part: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key != "wall_s"}


@pytest.mark.parametrize("kind", ["max-buffer", "doubling", "paged"])
def test_fleet_of_one_replica_equals_the_scenario_without_a_fleet(kind: str) -> None:
    allocator = [{"kind": kind}]
    alone = simulate(table(None, allocator=allocator)).summary()
    one = simulate(table({"replicas": 1}, allocator=allocator)).summary()
    mine, theirs = without_time(one["runs"][0]), without_time(alone["runs"][0])
    assert mine == theirs
    fleet = one["fleets"][0]
    for key, value in theirs.items():
        assert fleet[key] == value, key


def test_fleet_counts_are_the_sums_over_its_replicas(served: Result) -> None:
    fleet = served.fleets[0]
    runs = [run.summary for run in served.runs]
    assert [run.label for run in runs] == ["paged #0", "paged #1", "paged #2"]
    assert fleet.requests.finished == sum(run.requests.finished for run in runs) == 80
    assert fleet.steps == sum(run.steps for run in runs)
    assert fleet.memory.capacity_bytes == 3 * runs[0].memory.capacity_bytes
    assert sum(fleet.memory.time_mean.as_json().values()) == pytest.approx(1.0)
    assert fleet.routing.decisions == {"load": 80}
    assert fleet.gpu_hours == pytest.approx(3 * fleet.makespan_s / 3600)
    assert fleet.cost == pytest.approx(2.0 * fleet.gpu_hours)
    assert fleet.within is not None
    assert fleet.goodput_per_s == pytest.approx(fleet.within * 80 / fleet.makespan_s)
    waits = sorted(
        float(row.first_token_ps - row.arrival_ps) / 1e12
        for run in served.runs
        for row in run.requests.itertuples()
    )
    assert fleet.ttft_s.mean == pytest.approx(sum(waits) / 80)
    assert fleet.within == pytest.approx(sum(wait <= 0.1 for wait in waits) / 80)


def test_fleet_result_is_stored_read_and_reported(served: Result, tmp_path: Path) -> None:
    store.write(tmp_path / "out", served, make_page(served))
    back = store.read(tmp_path / "out")
    assert back.summary() == served.summary()
    said = paragraphs(back)
    assert said == paragraphs(served)
    assert (
        "3 replicas of “paged” behind the least-requests router finished 80 of 80 requests"
        in said[0]
    )
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Load of each replica" in page
    assert "paged #2" in page
    assert "<h1>Where the KV memory went: 3 replicas of paged</h1>" in page
    assert "kvsim capacity scenario.toml --slo ttft_s.p99=2" in page
    assert "kvsim doctor" not in page  # which takes one replica
    facts = page[page.index('class="facts"') :].partition("workload")[0]
    assert "<bdi>80</bdi>" in facts  # of all replicas, not of the first


def test_groups_have_devices_and_engines_of_their_own() -> None:
    groups = [
        {"replicas": 2},
        {
            "replicas": 1,
            "device": {"name": "h100"},
            "model": {"tensor_parallel_size": 2},
            "memory": {"kv_cache_tokens": 40_000},
            "scheduler": {"kind": "continuous", "max_num_seqs": 4},
        },
    ]
    found = simulate(table({"group": groups}))
    sizes = [run.summary.memory.capacity_tokens for run in found.runs]
    assert sizes == [20_000, 20_000, 40_000]
    assert found.fleets[0].gpu_hours == pytest.approx(4 * found.fleets[0].makespan_s / 3600)
    tpot = [run.summary.tpot_s.p50 or 0.0 for run in found.runs]
    assert tpot[2] < min(tpot[:2])


def test_stored_fleet_scenario_runs_again_with_equal_results(served: Result) -> None:
    again = simulate(deepcopy(served.scenario))
    assert [run.summary.simulated() for run in again.runs] == [
        run.summary.simulated() for run in served.runs
    ]


def test_sweep_of_a_fleet_reports_fleet_totals() -> None:
    limits = {"ttft_s": 0.1}
    outcome = run_task(make_task(table({"replicas": 2}), Path(), limits))
    assert outcome.error is None
    row = outcome.rows[0]
    assert row["requests.finished"] == 80
    assert row["replicas"] == 2
    assert 0 < row["within"] <= 1
    assert json.loads(json.dumps(row)) == row


@pytest.mark.parametrize(
    ("fleet", "said"),
    [
        ({"replicas": 0}, r"fleet\.replicas"),
        ({"replica": 2}, "replica.*did you mean 'replicas'"),
        ({"replicas": 2, "router": {"kind": "round-robbin"}}, "round-robin"),
        ({"replicas": 1, "router": {"kind": "power-of-two"}}, "two replicas"),
        ({"replicas": 2, "group": [{"replicas": 1}]}, "exclude each other"),
        ({"group": [{"device": {"name": "abacus"}}]}, r"fleet\.group\.0\.device.*abacus"),
        ({"replicas": 2, "objectives": {"ttft_ms": 5}}, "objectives"),
    ],
)
def test_invalid_fleet_is_refused_by_name(fleet: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"(?s){said}"):
        simulate(table(fleet))
