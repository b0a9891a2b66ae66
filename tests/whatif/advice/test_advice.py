"""`kvsim advise` finds a badly set option, and suggests nothing if nothing helps."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.chats import chats
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.toml import to_toml
from kvsim.scenario import Scenario, load_tables
from kvsim.simulation import Simulation
from kvsim.whatif.advice import serve
from kvsim.whatif.advice.advice import Advisor
from kvsim.whatif.advice.change import Advice, goal_named
from kvsim.whatif.advice.knobs import KNOBS
from kvsim.whatif.backends import BACKENDS
from kvsim.whatif.replicates import replicates
from kvsim.whatif.runner import TaskRunner


def sessions(tables: Any) -> dict[str, Any]:
    workload = {
        "kind": "sessions",
        "num_sessions": 25,
        "arrivals": {"kind": "poisson", "rate_per_s": 1.0},
        "turns": {"kind": "fixed", "tokens": 6},
        "prompt": {"kind": "uniform", "min_tokens": 40, "max_tokens": 200},
        "output": {"kind": "geometric", "mean": 30},
        "think": {"kind": "exponential", "mean_s": 1.0},
        "prefixes": [{"tokens": {"kind": "fixed", "tokens": 400}}],
        "max_context": 2048,
    }
    return chats(
        tables,
        model={"name": "opt-125m", "max_model_len": 2048},
        memory={"kv_cache_tokens": 40_000},
        allocator=[{"kind": "paged", "enable_prefix_caching": False}],
        workload=workload,
    )


def advised(table: dict[str, Any], goal: str = "e2e_s.mean", repeat: int = 4) -> Advice:
    runner = TaskRunner(BACKENDS.get("processes")(jobs=1))
    return Advisor(table, Path(), goal_named(goal), runner, repeat=repeat).advise()


PLANTED = {
    "too few sequences": (
        "scheduler.max_num_seqs",
        lambda t: chats(t, scheduler={"kind": "continuous", "max_num_seqs": 4}),
    ),
    "blocks as long as the longest request": (
        "allocator.0.block_size",
        lambda t: chats(t, allocator=[{"kind": "paged", "block_size": 1024}]),
    ),
    "conversations without a prefix cache": ("allocator.0.enable_prefix_caching", sessions),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_advise_finds_a_planted_bad_setting(tables: Any, name: str) -> None:
    key, make = PLANTED[name]
    advice = advised(make(tables))
    assert advice.changes[0].knob.key == key
    assert advice.changes[0].verdict == "better"
    assert advice.taken[0].knob.key == key
    # What it buys holds on seeds that neither search nor test has seen.
    assert advice.reported is not None
    assert advice.reported.high < 0


def test_advise_suggests_no_memory_setting_without_a_bottleneck(tables: Any) -> None:
    """Requests arrive far apart, so options that divide memory change nothing."""
    table = chats(tables)
    table["workload"] = {**table["workload"], "num_requests": 30}
    table["workload"]["arrivals"] = {"kind": "poisson", "rate_per_s": 0.05}
    advice = advised(table, repeat=3)
    knobs = {change.knob.key for change in advice.changes if change.helps}
    assert not knobs & {
        "scheduler.max_num_seqs",
        "allocator.0.block_size",
        "allocator.0.watermark",
        "scheduler.victim",
        "scheduler.preemption_mode",
    }


def test_advise_tries_eviction_policies_if_more_hits_are_possible(tables: Any) -> None:
    (knob,) = [knob for knob in KNOBS if knob.key == "allocator.0.eviction_policy"]

    def tried(table: dict[str, Any], caching: bool) -> list[Any]:
        table["allocator"] = [{"kind": "paged", "enable_prefix_caching": caching}]
        return list(knob.values(Simulation(Scenario.from_table(table))))

    assert {"kind": "arc"} in tried(sessions(tables), True)
    assert not tried(sessions(tables), False)
    assert not tried(chats(tables), True)  # its content is nobody else's


def test_advise_tries_retention_intervals_for_sliding_window_models(tables: Any) -> None:
    (knob,) = [each for each in KNOBS if each.key.endswith("retention_interval")]
    windows = Simulation(Scenario.load("windows-round-robin", ["workload.num_sessions=8"]))
    everything, least, between = knob.values(windows)
    assert (everything, least) == ("none", 0)
    assert between > 0
    assert knob.flag is not None
    assert knob.flag("none").endswith(" None")  # as vLLM writes it
    table, folder = load_tables("windows-round-robin", ["workload.num_sessions=8"])
    table["allocator"] = [{"kind": "paged", "prefix_cache_retention_interval": between}]
    assert f"--prefix-cache-retention-interval {between}" in serve.command(table, folder)
    assert not list(knob.values(Simulation(Scenario.from_table(sessions(tables)))))


def test_advise_never_takes_a_change_that_refuses_requests(tables: Any) -> None:
    """Without chunked prefill a prompt above the token budget is refused, which makes all others
    faster.
    """
    table = chats(tables, scheduler={"kind": "continuous", "max_num_batched_tokens": 256})
    advice = advised(table, repeat=3)
    (change,) = [c for c in advice.changes if c.knob.key == "scheduler.enable_chunked_prefill"]
    assert change.verdict.startswith("refuses")
    assert change not in advice.taken


def test_replicates_are_separate_seeds_or_windows_of_a_trace(tables: Any, tmp_path: Path) -> None:
    sets = replicates(chats(tables), tmp_path, 2)
    names = [[each.name for each in some] for some in sets[:3]]
    assert names == [["seed 0", "seed 1"], ["seed 2", "seed 3"], ["seed 4", "seed 5"]]
    rows = "".join(f"{at},{9 + at % 3},9\n" for at in range(121))
    (tmp_path / "t.csv").write_text(f"arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}")
    trace = chats(tables, workload={"kind": "trace", "path": "t.csv"})
    sets = replicates(trace, tmp_path, 2)
    windows = [[each.window_s for each in some] for some in sets[:3]]
    assert windows == [[(0, 20), (60, 80)], [(20, 40), (80, 100)], [(40, 60), (100, 120)]]
    assert sets.search[0].put(trace)["workload"]["end_s"] == 20
    steady = chats(tables)
    steady["workload"]["arrivals"] = {"kind": "constant", "rate_per_s": 2.0}
    for part in ("prompt", "output"):
        steady["workload"][part] = {"kind": "fixed", "tokens": 50}
    assert replicates(steady, tmp_path, 2).exact


def test_vllm_serve_flags_follow_the_tables(tables: Any) -> None:
    table = chats(
        tables,
        model={"name": "llama-2-7b", "max_model_len": 2048, "kv_cache_dtype": "fp8"},
        device={"name": "a100-80gb"},
        memory={"gpu_memory_utilization": 0.85},
        allocator=[{"kind": "paged", "block_size": 32, "enable_prefix_caching": False}],
        scheduler={"kind": "continuous", "max_num_seqs": 99, "victim": {"kind": "latest"}},
    )
    said = serve.command(table, Path())
    for flag in (
        "vllm serve meta-llama/Llama-2-7b-hf \\\n", "--gpu-memory-utilization 0.85",
        "--max-model-len 2048", "--kv-cache-dtype fp8", "--block-size 32",
        "--no-enable-prefix-caching", "--max-num-seqs 99",
        "# no flag sets scheduler.victim = latest",
        "scheduler.async_scheduling = false (vLLM true)",
    ):  # fmt: skip
        assert flag in said
    for flag in ("--max-num-batched-tokens", "async-scheduling", "--watermark", "chunked-prefill"):
        assert flag not in said  # nobody set it
    assert "--num-gpu-blocks-override 375" in serve.command(
        {**table, "memory": {"kv_cache_tokens": 12_000}}, Path()
    )


def test_current_command_contains_lora_and_other_untuned_flags(tables: Any) -> None:
    made = tables(
        allocator=[{"kind": "paged"}],
        memory={"max_loras": 4, "max_lora_rank": 64, "enforce_eager": True},
        scheduler={"kind": "continuous", "policy": "priority"},
    )
    said = " ".join(serve.command(made, Path()).replace("\n#", " \\ #").split())
    for flag in ("--enable-lora", "--max-loras 4", "--max-lora-rank 64", "--enforce-eager"):
        assert f"{flag} \\" in said
    assert "--scheduling-policy priority" in said


def test_the_command_prints_both_settings_and_answers_in_json(tables: Any, tmp_path: Path) -> None:
    table = chats(tables, scheduler={"kind": "continuous", "max_num_seqs": 2})
    table["workload"]["num_requests"] = 40
    path = tmp_path / "s.toml"
    path.write_text(to_toml(table))
    out = tmp_path / "out"
    arguments = [
        "advise",
        str(path),
        "--verbose",
        "--repeat",
        "3",
        "--jobs",
        "1",
        "--out",
        str(out),
    ]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert "# today: --max-num-seqs 2" in done.stdout  # the best setting is what changes
    answer = json.loads((out / "advice.json").read_text())
    assert answer["taken"]["scheduler.max_num_seqs"] > 2
    assert "--max-num-seqs 2\n" in answer["vllm_serve"]["today"]
    assert "What each change buys" in (out / "advice.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--goal", "luck"], "unknown number"), (["--set", "allocator='doubling'"], "paged")],
)
def test_unsupported_advice_is_refused(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["advise", "chat", *arguments])
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)


def test_advice_tries_a_tier_if_reused_content_exceeds_the_pool(tables: Any) -> None:
    (knob,) = [each for each in KNOBS if each.key == "tier"]

    def tried(**changes: Any) -> list[Any]:
        caching = {"allocator": [{"kind": "paged"}], "scheduler": {"kind": "continuous"}}
        table = sessions(tables) | caching | changes
        return list(knob.values(Simulation(Scenario.from_table(table))))

    small = {"memory": {"kv_cache_tokens": 4_000}}
    assert not tried()  # the device holds everything
    (tier,) = tried(**small)[0]
    assert tier["kind"] == "vllm-offloading"
    assert knob.flag is not None
    assert knob.flag([tier]) == f"--kv-offloading-size {tier['kv_offloading_size']}"
    assert not tried(**small, allocator=[{"kind": "paged", "enable_prefix_caching": False}])
    with_one = tried(**small, tier=[{"kind": "vllm-offloading", "kv_offloading_size": 9.5}])
    assert with_one[0] is None  # an engine may be better off without
    assert knob.flag(None) == ""
    table = sessions(tables) | {"allocator": [{"kind": "paged"}], "scheduler": "continuous"}
    table["tier"] = [{"kind": "vllm-offloading", "kv_offloading_size": 9.5}]
    assert "--kv-offloading-size 9.5" in serve.command(table, Path())


def test_a_scenario_that_serves_nothing_gets_no_advice(tables: Any) -> None:
    table = chats(tables)
    table["workload"] = {**table["workload"], "prompt": {"kind": "fixed", "tokens": 5000}}
    del table["workload"]["clip_to"]
    with pytest.raises(InputError, match=r"e2e_s\.mean: has no value at today's settings"):
        advised(table)
