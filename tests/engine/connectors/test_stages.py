"""A host memory tier with pipeline parallelism."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.auditor import Auditor
from support.cases import streams
from support.events import events_and_steps
from support.fuzzing.laws import check
from support.outcomes import check_books
from support.scenarios import conversations, refuses, run

import kvsim
from kvsim.engine.connectors.totals import FROM_HOST, TO_HOST
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

HOST = {"kind": "vllm-offloading", "kv_offloading_size": 8.0}
DRAFTS = {"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 0.5}
A_TOKEN = 131_072  # bytes of Llama 3.1 8B, all stages together


def staged(
    stages: int = 2, tokens: int = 12_000, *, ahead: bool = True, **model: Any
) -> dict[str, Any]:
    found = conversations(tokens)
    found["model"] |= {"pipeline_parallel_size": stages, **model}
    found["scheduler"] = {"kind": "continuous", "async_scheduling": ahead}
    return found | {"tier": [HOST]}


@pytest.mark.parametrize("ahead", [True, False], ids=["asynchronous", "synchronous"])
@pytest.mark.parametrize("stages", [2, 4])
def test_host_memory_hits_load_over_the_links_of_all_stages(stages: int, *, ahead: bool) -> None:
    table = staged(stages, ahead=ahead)
    behind = run(table)
    without = run({key: value for key, value in table.items() if key != "tier"})
    offloading = behind.offloading
    assert offloading is not None
    hits = behind.prefix_cache.host_hit_tokens
    assert hits
    assert behind.prefix_cache.hit_tokens > without.prefix_cache.hit_tokens
    assert (behind.ttft_s.mean or 0) < (without.ttft_s.mean or 0)
    assert offloading.tiers[0].loaded_bytes == hits * A_TOKEN
    assert offloading.tiers[0].stored_bytes % (16 * A_TOKEN) == 0


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams())
def test_lone_plan_over_two_stages_equals_single_steps(
    tables: Any, requests: list[Request]
) -> None:
    """The engine sleeps after each step, since the other step in flight is empty."""
    made = tables(model={"name": "opt-125m", "max_model_len": 1024}, allocator=[{"kind": "paged"}])
    made["model"]["pipeline_parallel_size"] = 2
    made |= {"step_time": {"kind": "roofline"}, "scheduler": {"kind": "continuous"}, "tier": [HOST]}
    found = []
    for steps in (1, 3, None):
        result = kvsim.simulate(made | ({"max_steps": steps} if steps else {}), requests)
        check_books(result)
        (each,) = result.runs
        recorder = each.recorder
        assert recorder is not None
        sums = recorder.time_sum, recorder.step_sum, recorder.part_sums
        queues = recorder.running_sum, recorder.waiting_sum
        summary = {key: value for key, value in each.summary.items() if key != "wall_s"}
        found.append((summary, sums, queues, each.requests.to_dict("records")))
    assert found[1] == found[0]
    assert found[2] == found[0]


def test_lone_plan_over_two_stages_runs_for_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most steps cost no event on the clock."""
    table = staged(ahead=False)
    num_events, num_steps = events_and_steps(monkeypatch, table | {"workload": {
        "kind": "synthetic", "num_requests": 4, "arrivals": {"kind": "poisson", "rate_per_s": 1.0},
        "prompt": {"kind": "fixed", "tokens": 100}, "output": {"kind": "fixed", "tokens": 200},
    }})  # fmt: skip
    assert num_events < num_steps / 4


def test_host_memory_capacity_is_equal_for_one_and_two_stages() -> None:
    """The configured size is the sum over ranks, so both hold the same number of tokens."""
    small = HOST | {"kv_offloading_size": 0.25}
    one, two = (run(staged(stages) | {"tier": [small]}) for stages in (1, 2))
    assert one.offloading is not None
    assert two.offloading is not None
    assert one.offloading.tiers[0].capacity_bytes == two.offloading.tiers[0].capacity_bytes


def test_each_stage_copies_over_its_own_host_link() -> None:
    """A slow link of one stage delays copies that all stages must report as done."""
    table = staged() | {"device": {"name": "h100-80gb", "stage": [
        {"number": 2, "name": "rtx-4090"},
    ]}}  # fmt: skip
    Simulation(Scenario.from_table(table))
    slow = staged() | {"tier": [HOST | {"load_gb_per_s": 0.5}]}
    fast = run(staged())
    for other in (run(table), run(slow)):
        assert other.offloading is not None
        assert fast.offloading is not None
        mine, theirs = other.offloading, fast.offloading
        assert mine.tiers[0].load_busy_s / mine.tiers[0].loaded_bytes > (
            theirs.tiers[0].load_busy_s / theirs.tiers[0].loaded_bytes
        )


def test_copies_of_each_stage_are_exported_by_stage() -> None:
    simulation = Simulation(Scenario.from_table(staged()))
    (options,), (label,) = simulation.scenario.allocator, simulation.labels
    made = simulation.run(options, label)
    links = [f"{name}, stage {stage}" for stage in (1, 2) for name in (TO_HOST, FROM_HOST)]
    assert list(dict.fromkeys(made.tables["links"]()["link"])) == links


@pytest.mark.parametrize("model", ["gemma-3-27b", "gpt-oss-20b", "qwen3-next-80b-a3b"])
def test_sliding_windows_and_states_hit_in_host_memory_over_stages(model: str) -> None:
    table = staged(name=model, tensor_parallel_size=4)
    table["memory"] = {"kv_cache_bytes": 120_000_000}
    behind = run(table)
    assert behind.prefix_cache.host_hit_tokens


@pytest.mark.parametrize("stages", [2, 4])
def test_the_ledger_sums_to_the_pool_at_every_event(stages: int) -> None:
    simulation = Simulation(Scenario.from_table(staged(stages)))
    (options,) = simulation.scenario.allocator
    auditor = Auditor()
    run = simulation.run(options, "audited", observer=auditor)
    assert auditor.events > 200
    assert run.summary["prefix_cache"]["host_hit_tokens"]


@pytest.mark.parametrize("ahead", [True, False], ids=["asynchronous", "synchronous"])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_step_rows_are_contiguous_while_the_engine_sleeps(
    tables: Any, stages: int, *, ahead: bool
) -> None:
    """The engine schedules while earlier steps compute, and processes their tokens after it has
    slept. Rows follow each other without holes, and gaps end when tokens are processed.
    """
    made = tables(
        model={"name": "opt-125m", "max_model_len": 1024, "pipeline_parallel_size": stages},
        allocator=[{"kind": "paged"}],
        memory={"kv_cache_bytes": 20 << 20},
        scheduler={
            "kind": "continuous",
            "async_scheduling": ahead,
            "max_num_batched_tokens": 64,
        },
        step_time={"kind": "roofline"},
        tier=[{"kind": "vllm-offloading", "kv_offloading_size": 0.05}],
        workload={
            "kind": "sessions",
            "num_sessions": 6,
            "arrivals": {"kind": "poisson", "rate_per_s": 4.0},
            "turns": {"kind": "fixed", "tokens": 3},
            "prompt": {"kind": "uniform", "max_tokens": 90},
            "output": {"kind": "uniform", "max_tokens": 20},
            "think": {"kind": "fixed", "seconds": 0.05},
        },
    )
    assert check(made)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("model", ["gemma-3-27b", "gpt-oss-20b", "qwen3-next-80b-a3b"])
def test_the_ledger_sums_to_the_pool_while_windows_and_states_load(model: str, stages: int) -> None:
    table = staged(stages, name=model, tensor_parallel_size=4)
    table["memory"] = {"kv_cache_bytes": 240_000_000 // stages}
    simulation = Simulation(Scenario.from_table(table))
    (options,) = simulation.scenario.allocator
    found = simulation.run(options, "audited", observer=Auditor()).summary
    assert found.prefix_cache.host_hit_tokens


def test_host_memory_works_with_drafts_over_stages() -> None:
    """Hits of host memory, and drafts accepted, at once; without tokens ahead of their drafts."""
    drafts = {"method": "eagle3", "num_speculative_tokens": 3, "acceptance_rate": 0.6}
    found = run(staged() | {"speculative_config": drafts})
    without = run(staged())
    assert found.prefix_cache.host_hit_tokens
    assert found.speculation is not None
    assert found.speculation.accepted_tokens
    assert found.steps < without.steps
    refuses(staged(ahead=False) | {"speculative_config": drafts}, "scheduler.async_scheduling")


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"tier": [HOST, {"kind": "file-system"}]}, "tier"),
        ({"tier": [HOST | {"kind": "vllm-simple-offloading"}]}, "tier"),
        ({"tier": [{"kind": "lmcache", "max_local_cpu_size": 1.0}]}, "tier"),
        (
            {"model": {"name": "llama-3.1-8b", "pipeline_parallel_size": 3}},
            "model.pipeline_parallel_size",
        ),
    ],
    ids=["files", "simple", "lmcache", "unlike stages"],
)
def test_unsupported_tier_options_over_stages_are_refused(
    changes: dict[str, Any], where: str
) -> None:
    refuses(staged() | changes, where)


@pytest.mark.parametrize("stages", [1, 2])
def test_recurrent_states_hit_in_host_memory_if_the_device_caches_them(stages: int) -> None:
    table = staged(stages)
    table["model"]["name"] = "falcon-mamba-7b"
    table["memory"] = {"kv_cache_bytes": 300_000_000}
    table["allocator"] = [{"kind": "paged", "enable_prefix_caching": True}]
    behind = run(table)
    assert behind.prefix_cache.host_hit_tokens
    table["allocator"] = [{"kind": "paged"}]
    with pytest.raises(InputError, match="where the device keeps them"):
        run(table)


@pytest.mark.parametrize(
    "tier",
    [HOST | {"kind": "vllm-simple-offloading"}, {"kind": "lmcache", "max_local_cpu_size": 1.0}],
    ids=["simple", "lmcache"],
)
def test_purely_recurrent_models_are_refused_by_other_tiers(tier: dict[str, Any]) -> None:
    table = conversations(1000) | {"tier": [tier]}
    table["model"] = {"name": "falcon-mamba-7b", "max_model_len": 8192}
    table["memory"] = {"kv_cache_bytes": 300_000_000}
    table["allocator"] = [{"kind": "paged", "enable_prefix_caching": True}]
    with pytest.raises(InputError) as refused:
        run(table)
    assert refused.value.where == "tier.0.kind"
