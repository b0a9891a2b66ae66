"""`kvsim cache`."""

import json

from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.memory.paged.eviction import EVICTION_POLICIES
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.cache_curve.order import in_order

QA = ["cache", "long-document-qa", "--set", "workload.num_sessions=20"]


def test_the_command_tells_the_curve_and_its_bounds() -> None:
    done = CliRunner().invoke(app, [*QA, "--belady", "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    lru = [row["lru"] for row in answer["sizes"]]
    assert lru == sorted(lru)
    assert all(row["lru"] <= row["belady"] <= answer["unlimited"] for row in answer["sizes"])
    assert 0 < answer["unlimited"] < 1
    assert answer["pool_tokens"] in [row["tokens"] for row in answer["sizes"]]
    printed = CliRunner().invoke(app, [*QA, "--at", "100000"], catch_exceptions=False)
    assert "100,000" in printed.stdout


def test_every_policy_is_compared_under_the_exact_schedule() -> None:
    tight = [*QA, "--set", "memory.kv_cache_tokens=150000"]
    done = CliRunner().invoke(app, [*tight, "--policies", "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    runs = {run["policy"]: run for run in json.loads(done.stdout)["policies"]}
    assert set(runs) == set(EVICTION_POLICIES)
    assert all(0 < run["found"] <= run["belady"] < 1 for run in runs.values())
    assert runs["tail-first"]["found"] != runs["lru"]["found"]
    result = Simulation(Scenario.load(QA[1], tight[3::2])).result()
    plain = next(
        run.summary["prefix_cache"]
        for run in result.runs
        if run.summary["prefix_cache"]["query_tokens"]
    )
    assert runs["lru"]["found"] == plain["hit_tokens"] / plain["query_tokens"]
    few = [*QA[:3], "workload.num_sessions=3", "--policies"]
    printed = CliRunner().invoke(app, few, catch_exceptions=False)
    assert "cost-aware" in printed.stdout
    refused = CliRunner().invoke(app, [*QA, "--policies", "--block-tokens", "8"])
    assert isinstance(refused.exception, InputError)


def test_a_run_says_in_which_order_conversations_come() -> None:
    table = {
        "model": {"name": "opt-125m"},
        "device": {"name": "a100-40gb"},
        "memory": {"kv_cache_tokens": 4096},
        "allocator": [{"kind": "paged"}],
        "step_time": {"kind": "linear", "base_us": 1000},
    }
    requests = [
        Request("a", 0, 10, 5),
        Request("a2", 0, 10, 5, after="a", think_ps=10**12),
        Request("b", 10**11, 10, 5),
    ]
    simulation = Simulation(Scenario.from_table(table), requests)
    assert [request.id for request in in_order(simulation)] == ["a", "b", "a2"]
