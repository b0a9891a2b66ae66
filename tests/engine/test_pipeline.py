"""Runs over the stages of a pipeline: closed forms, the books at every event, gaps between tokens,
the pool, and what is refused.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.auditor import Auditor
from support.cases import ALLOCATOR_TABLES, streams
from support.outcomes import CROWDED, check_tokens, outcome, unless_thrashing

import kvsim
from kvsim.engine.observer import Observer
from kvsim.engine.pipeline import Pipeline
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.scenario.build.sized import SizedScenario
from kvsim.scenario.build.stages import staged_plan
from kvsim.simulation import Simulation
from kvsim.step import Chunk, StepShape
from kvsim.step_time.form import DecodeRun
from kvsim.step_time.stages import StageTimes

SERVED = [table for table in ALLOCATOR_TABLES if "host_cache_gib" not in table]


class Constant:
    """A stage with a constant step time."""

    def __init__(self, ps: int) -> None:
        self._ps = ps

    def step_ps(self, shape: StepShape) -> int:
        return self._ps if shape.num_tokens else 0

    def decode_run(self, num_decode: int, context_tokens: int, longest: int = 0) -> DecodeRun:
        return DecodeRun(self._ps, 0)


def staged(tables: Any, stages: int, **parts: Any) -> dict[str, Any]:
    """The tables of a scenario with `stages` pipeline stages, timed by rooflines."""
    made = tables(**{"step_time": {"kind": "roofline"}, **parts})
    made["model"] = {**made["model"], "pipeline_parallel_size": stages}
    return made


def test_micro_batches_pass_the_stages_in_order() -> None:
    times = StageTimes([Constant(30), Constant(50), Constant(20)], send_ps=5, token_fs=[0, 0])
    prompt = StepShape((Chunk(4, 0),), 0, 0, 0)
    pipeline = Pipeline(times)
    assert times.step_ps(prompt) == 30 + 5 + 50 + 5 + 20
    assert pipeline.end_ps(prompt, 1000) == 1000 + 110
    # The second waits for the slowest stage, the middle one, and nowhere else.
    assert pipeline.end_ps(prompt, 1000) == 1000 + 110 + 50
    assert pipeline.end_ps(prompt, 5000) == 5000 + 110
    # A token of 2,000 bytes more takes longer to send.
    slow = StageTimes([Constant(30), Constant(50)], send_ps=5, token_fs=[2000])
    assert slow.step_ps(prompt) == 30 + 5 + 8 + 50


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_throughput_is_full_with_one_micro_batch_per_stage(tables: Any, stages: int) -> None:
    """One sequence uses one stage at a time. As many sequences as stages, each of which fills the
    token budget with its prompt, take little longer than one: a step later for each.
    """
    prompt, output = 64, 100

    def ends_ps(count: int) -> list[int]:
        made = staged(
            tables,
            stages,
            allocator=[{"kind": "paged", "enable_prefix_caching": False}],
            scheduler={"kind": "continuous", "max_num_batched_tokens": prompt},
            step_time={"kind": "roofline", "overhead_us": 1000, "layer_us": 0},
        )
        requests = [Request(f"r{at}", 0, prompt, output) for at in range(count)]
        (run,) = kvsim.simulate(made, requests).runs
        return sorted(run.requests["finish_ps"])

    (alone,) = ends_ps(1)
    together = ends_ps(stages)
    # Prompts take longer than decode steps, so the first tokens come apart.
    assert together[0] < 1.05 * alone
    assert together[-1] < 1.05 * alone + stages * alone / output
    # One more than stages must share a micro-batch, or wait.
    assert ends_ps(stages + 1)[-1] > together[-1]


def crowded(allocator: Any, *, priority: bool, ahead: bool) -> dict[str, Any]:
    """Tables in which eight sequences crowd the allocator, with the default step times."""
    scheduler = {
        "kind": "continuous",
        "max_num_seqs": 8,
        "max_num_batched_tokens": 128,
        "policy": "priority" if priority else "fcfs",
        "async_scheduling": ahead,
    }
    parts = {**CROWDED, "allocator": [allocator], "scheduler": scheduler}
    parts.pop("step_time", None)
    return parts


@pytest.mark.parametrize("stages", [2, 4])
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    requests=streams(),
    allocator=st.sampled_from(SERVED),
    priority=st.booleans(),
    ahead=st.booleans(),
)
@unless_thrashing
def test_pipeline_ledger_and_token_gaps_are_consistent(
    tables: Any, stages: int, allocator: Any, priority: bool, ahead: bool, requests: list[Request]
) -> None:
    parts = crowded(allocator, priority=priority, ahead=ahead)
    scenario = Scenario.from_table(staged(tables, stages, **parts, max_steps=1))
    auditor = Auditor()
    run = Simulation(scenario, requests).run(scenario.allocator[0], "audited", observer=auditor)
    assert auditor.events >= 2
    ended = run.summary["requests"]
    assert ended["finished"] + ended["rejected"] == len(requests)
    check_tokens(Simulation(scenario, requests))


@pytest.mark.parametrize(
    ("model", "num_blocks"),
    [("gemma-3-27b", 220), ("llama-4-scout", 220), ("jamba-v0.1", 60), ("deepseek-v4-flash", 400)],
)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams(), ahead=st.booleans(), stages=st.sampled_from([2, 4]))
@unless_thrashing
def test_pipeline_ledger_is_consistent_for_windows_chunks_and_states(
    tables: Any, model: str, num_blocks: int, stages: int, ahead: bool, requests: list[Request]
) -> None:
    made = staged(
        tables,
        stages,
        model={"name": model, "max_model_len": 1024},
        device={"name": "h200"},
        memory={"num_gpu_blocks": num_blocks},
        allocator=[{"kind": "paged"}],
        scheduler={
            "kind": "continuous",
            "max_num_seqs": 8,
            "max_num_batched_tokens": 2048,
            "async_scheduling": ahead,
        },
        max_steps=1,
    )
    scenario = Scenario.from_table(made)
    auditor = Auditor()
    simulation = Simulation(scenario, requests)
    run = simulation.run(scenario.allocator[0], "audited", observer=auditor)
    assert auditor.events >= 2
    ended = run.summary["requests"]
    assert ended["finished"] + ended["rejected"] == len(requests)
    check_tokens(simulation)


@pytest.mark.parametrize(
    ("model", "device", "stages"),
    [
        ("gpt-oss-20b", "h100", 2),
        ("gemma-3-27b", "h100", 4),
        ("gemma-4-31b", "h200", 2),
        ("jamba-v0.1", "h200", 2),
        ("qwen3-next-80b-a3b", "h200", 2),
        ("llama-4-scout", "h200", 4),
        ("deepseek-v4-flash", "h200", 4),
        ("falcon-mamba-7b", "h100", 2),
    ],
)
def test_pipeline_run_has_the_blocks_of_the_sized_pool(
    model: str, device: str, stages: int
) -> None:
    tables = {
        "model": {"name": model, "pipeline_parallel_size": stages, "max_model_len": 8192},
        "device": {"name": device},
        "allocator": [{"kind": "paged"}],
    }
    simulation = Simulation(Scenario.from_table(tables), [Request("r", 0, 8, 8)])
    plan = simulation.replica_spec(simulation.scenario.allocator[0]).plan
    assert plan is not None
    sized = simulation.pool.engine_num_gpu_blocks
    assert simulation.pool.capacity_bytes // plan.block_bytes == sized
    (run,) = simulation.result().runs
    assert run.summary["requests"]["finished"] == 1


@pytest.mark.parametrize(
    ("model", "layers"),
    [("gpt-oss-20b", "1,1,22"), ("jamba-v0.1", "4,1,27"), ("gemma-3-27b", "5,1,56")],
)
def test_stage_without_a_layer_of_some_group_is_refused(model: str, layers: str) -> None:
    """Alone the second stage would do with one block table, but all stages have the same tables."""
    tables = {
        "model": {"name": model, "pipeline_parallel_size": 3, "pp_layer_partition": layers},
        "device": {"name": "h200"},
        "allocator": [{"kind": "paged"}],
    }
    sized = SizedScenario(Scenario.from_table(tables))
    options, (allocator,) = sized.scenario.model, sized.scenario.allocator
    rules = sized.scenario.scheduler_of(allocator).block_rules
    for stage in (0, 1):
        with pytest.raises(InputError, match=rf"no layer .*stage {stage + 1} of 3"):
            staged_plan(allocator, options, sized.model, stage, rules, by_chunk=False)
    assert staged_plan(allocator, options, sized.model, 2, rules, by_chunk=False) is not None


@pytest.mark.parametrize("stages", [2, 3])
def test_asynchronous_scheduling_gains_nothing_for_a_lone_sequence_on_stages(
    tables: Any, stages: int
) -> None:
    """The first stage waits for the token of a micro-batch that is scheduled ahead, and scheduling
    itself takes no time here. So a sequence alone gains nothing.
    """

    def finish_ps(*, ahead: bool) -> list[int]:
        made = staged(
            tables,
            stages,
            allocator=[{"kind": "paged"}],
            scheduler={"kind": "continuous", "async_scheduling": ahead},
        )
        requests = [Request("r", 0, 64, 50)]
        (run,) = kvsim.simulate(made, requests).runs
        return list(run.requests["finish_ps"])

    assert finish_ps(ahead=True) == finish_ps(ahead=False)


def test_pipeline_pool_has_the_fewest_blocks_of_any_stage() -> None:
    tables = {
        "model": {
            "name": "llama-3.1-8b",
            "pipeline_parallel_size": 2,
            "pp_layer_partition": "20,12",
        },
        "device": {"name": "rtx-4090"},
        "allocator": [{"kind": "paged"}],
    }
    simulation = Simulation(Scenario.from_table(tables), [Request("r", 0, 8, 8)])
    # 20 layers with 8 heads of 128 values of 2 bytes, keys and values.
    assert simulation.layout.bytes_per_token == 20 * 2 * 8 * 128 * 2
    blocks = [share.num_gpu_blocks for share in simulation.stages]
    assert simulation.pool.engine_num_gpu_blocks == min(blocks) == blocks[0]
    told = simulation.resolved()["provenance"]["stages"]
    assert [share["layers"] for share in told] == [20, 12]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            {
                "scheduler": {
                    "kind": "continuous",
                    "async_scheduling": True,
                    "semantics": "vllm-0.27",
                }
            },
            "as vLLM 0.33",
        ),
        ({"scheduler": {"kind": "vllm-v0"}}, "one pipeline stage"),
        ({"scheduler": {"kind": "continuous", "preemption_mode": "swap"}}, "not swapped"),
        ({"step_time": {"kind": "linear", "base_us": 8000}}, "times whole models"),
        (
            {
                "model": {"name": "gemma-3-27b"},
                "device": {"name": "h200"},
                "allocator": [{"kind": "max-buffer"}],
            },
            "a window or a state",
        ),
        (
            {
                "model": {"name": "jamba-v0.1", "pp_layer_partition": "4,28"},
                "device": {"name": "h200"},
                "memory": {"kv_cache_tokens": 16384},
            },
            "no layer of one of the groups",
        ),
        (
            {
                "speculative_config": {
                    "method": "ngram",
                    "num_speculative_tokens": 3,
                    "acceptance_rate": 0.5,
                }
            },
            "scheduled before the token|schedules drafts before",
        ),
    ],
)
def test_features_unsupported_with_pipeline_parallelism_are_refused(
    tables: Any, parts: dict[str, Any], said: str
) -> None:
    made = staged(tables, 2, **{"allocator": [{"kind": "paged"}], **parts})
    with pytest.raises(InputError, match=said) as error:
        Simulation(Scenario.from_table(made), [Request("r", 0, 8, 8)])
    assert error.value.where


class Plans(Observer):
    """Counts the plans with tokens."""

    num = 0

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        self.num += not plan.empty


@pytest.mark.parametrize("stages", [2, 3])
def test_lone_micro_batch_runs_for_many_steps_as_one_plan(tables: Any, stages: int) -> None:
    """Sequences that decode in one micro-batch, while the other steps in flight are empty, cost as
    few plans as on one stage; an arrival ends the run with its current step.
    """
    made = staged(tables, stages, allocator=[{"kind": "paged"}], scheduler={"kind": "continuous"})
    requests = [Request("a", 0, 64, 200), Request("b", 10**9, 90, 150)]
    scenario, plans = Scenario.from_table(made), Plans()
    run = Simulation(scenario, requests).run(scenario.allocator[0], "run", observer=plans)
    assert plans.num < run.summary["steps"] / 10


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    requests=streams(),
    allocator=st.sampled_from(SERVED),
    priority=st.booleans(),
    ahead=st.booleans(),
    stages=st.sampled_from([2, 3]),
)
@unless_thrashing
def test_runs_over_stages_equal_single_steps(
    tables: Any,
    stages: int,
    allocator: Any,
    priority: bool,
    ahead: bool,
    requests: list[Request],
) -> None:
    parts = crowded(allocator, priority=priority, ahead=ahead)
    made = staged(tables, stages, **parts)
    single = outcome(made, requests, 1)
    assert outcome(made, requests, None) == single
    assert outcome(made, requests, 3) == single
