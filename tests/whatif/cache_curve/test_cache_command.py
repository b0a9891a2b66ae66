"""`kvsim cache` on the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kvsim
from kvsim.cli import app
from kvsim.memory.paged.eviction import EVICTION_POLICIES
from kvsim.plumbing.errors import InputError
from kvsim.report.numbers import percent
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.cache_curve.order import in_order
from kvsim.whatif.cache_curve.prompt_ends import found_at_ends

SHORT_PREFIX = """
[model]
name = "qwen3-next-80b-a3b"
max_model_len = 8192
[device]
name = "h200"
[memory]
num_gpu_blocks = 400
[[allocator]]
kind = "paged"
[scheduler]
kind = "continuous"
[workload]
kind = "synthetic"
num_requests = 40
arrivals = { kind = "poisson", rate_per_s = 1.0 }
prompt = { kind = "uniform", min_tokens = 20, max_tokens = 100 }
output = { kind = "fixed", tokens = 10 }
prefixes = [{ count = 1, tokens = { kind = "fixed", tokens = 240 } }]
"""
CONVERSATIONS = (
    SHORT_PREFIX[: SHORT_PREFIX.index("[workload]")].replace("= 400", "= 4000")
    + """
[workload]
kind = "sessions"
num_sessions = 12
arrivals = { kind = "poisson", rate_per_s = 0.05 }
turns = { kind = "fixed", tokens = 9 }
prompt = { kind = "uniform", min_tokens = 20, max_tokens = 120 }
output = { kind = "fixed", tokens = 40 }
think = { kind = "fixed", seconds = 1.0 }
prefixes = [{ count = 1, tokens = { kind = "fixed", tokens = 240 } }]
"""
)
QA = ["cache", "long-document-qa", "--set", "workload.num_sessions=20"]


def test_cache_command_prints_the_lru_curve_below_beladys_bound() -> None:
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


@pytest.mark.slow
def test_cache_policies_are_simulated_with_the_real_scheduler() -> None:
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


def test_conversation_order_of_the_cache_curve_is_taken_from_a_run() -> None:
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


def test_least_retention_restores_hits_lost_to_cached_windows() -> None:
    """The recipe with 16 conversations instead of 64: a turn hits the whole conversation or
    nothing.
    """
    few = ["cache", "windows-round-robin", "--retention", "--set", "workload.num_sessions=16"]
    done = CliRunner().invoke(app, [*few, "--json"], catch_exceptions=False)
    answer = json.loads(done.stdout)
    dense, least = answer["retention"]
    assert (dense["interval"], least["interval"]) == ("none", 0)
    assert dense["found"] < 0.1 < 0.6 < least["found"]
    assert dense["ttft_s"]["mean"] > 5 * least["ttft_s"]["mean"]
    assert answer["retention_buys"].startswith("Retention buys ")
    left = [run["cached_of_windows_and_states"] for run in (dense, least)]
    assert 0.5 < left[1] < left[0] < dense["cached"]
    assert "of the pool then" in answer["retention_buys"]
    assert "why" not in answer


def test_cache_command_explains_a_prefix_shorter_than_a_block(tmp_path: Path) -> None:
    """Prompts share 240 tokens, which is less than one block of 544."""
    path = tmp_path / "short.toml"
    path.write_text(SHORT_PREFIX)
    answer = json.loads(CliRunner().invoke(app, ["cache", str(path), "--json"]).stdout)
    assert (answer["block_tokens"], answer["unlimited"]) == (544, 0.0)
    assert "A block holds 544 tokens, since it must hold a recurrent state" in answer["why"]
    # No prompt goes on from another: a run with units finds nothing either.
    assert "prefix_match_unit = 32 lets hits end inside a block, but only" in answer["why"]
    assert "it finds no more" in answer["why"]
    assert found_in_a_run(path, "allocator.0.prefix_match_unit=32") == 0.0
    finer = ["cache", str(path), "--json", "--block-tokens", "16"]
    assert json.loads(CliRunner().invoke(app, finer).stdout)["unlimited"] > 0.5


@pytest.mark.parametrize("unit", [None, 16, 34])
def test_cache_command_estimates_hits_inside_blocks(tmp_path: Path, unit: int | None) -> None:
    """Conversations share their first 240 tokens. The estimate equals, to the token, the hits of a
    run that caches everything.
    """
    path = tmp_path / "conversations.toml"
    path.write_text(CONVERSATIONS)
    changes = ['allocator.0.prefix_cache_retention_interval="none"']
    blocks = found_in_a_run(path, *changes)
    if unit is not None:
        changes.append(f"allocator.0.prefix_match_unit={unit}")
    asked = ["cache", str(path), "--json", *(f"--set={change}" for change in changes)]
    answer = json.loads(CliRunner().invoke(app, asked, catch_exceptions=False).stdout)
    made = Simulation(Scenario.load(str(path), changes))
    tried = unit or 32
    inside = found_at_ends(in_order(made), answer["block_tokens"], tried, outputs=True)
    assert f"(vLLM 0.27 and later). That could find {percent(inside)}." in answer["why"]
    found = found_in_a_run(path, *changes, f"allocator.0.prefix_match_unit={tried}")
    assert found == inside > answer["unlimited"] == blocks


def found_in_a_run(path: Path, *changes: str) -> float:
    (run,) = kvsim.simulate(Scenario.load(str(path), list(changes))).runs
    cache = run.summary["prefix_cache"]
    return float(cache["hit_tokens"] / cache["query_tokens"])


def test_cache_sizes_are_parsed_with_units() -> None:
    answer = CliRunner().invoke(app, [*QA, "--json", "--at", "64K", "--at", "1_000"])
    assert [each["tokens"] for each in json.loads(answer.stdout)["sizes"]] == [1000, 65536]
    for wrong in ("0", "-4", "many"):
        refused = CliRunner().invoke(app, [*QA, f"--at={wrong}"])
        assert refused.exit_code == 2
        assert "no count of one or more" in refused.output
