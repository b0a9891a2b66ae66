"""Drafts over the stages of a pipeline: the books, closed forms, and where the drafter is."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.auditor import Auditor
from support.cases import streams
from support.drafting import METHODS
from support.outcomes import check_tokens, unless_thrashing

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.step import StepShape
from kvsim.step_time.stages import StageTimes


def drafting(stages: int, acceptance: float, **parts: Any) -> dict[str, Any]:
    return {
        "model": {
            "name": "llama-3.1-8b",
            "pipeline_parallel_size": stages,
            "max_model_len": 1024,
        },
        "device": {"name": "l40s"},
        "memory": {"num_gpu_blocks": 150},
        "allocator": [{"kind": "paged"}],
        "scheduler": {
            "kind": "continuous",
            "async_scheduling": True,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 128,
        },
        "step_time": {"kind": "roofline"},
        "speculative_config": {
            "method": "draft_model",
            "model": "llama-3.2-1b",
            "num_speculative_tokens": 3,
            "acceptance_rate": acceptance,
        },
        **parts,
    }


@pytest.mark.parametrize("stages", [2, 3, 5])
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    requests=streams(),
    acceptance=st.sampled_from([0.2, 0.7, 1.0]),
    policy=st.sampled_from(["fcfs", "priority"]),
)
@unless_thrashing
def test_pipelined_drafts_have_consistent_ledger_and_token_gaps(
    stages: int, acceptance: float, policy: str, requests: list[Request]
) -> None:
    tables = drafting(stages, acceptance, max_steps=1)
    tables["scheduler"] |= {"policy": policy}
    scenario = Scenario.from_table(tables)
    auditor = Auditor()
    simulation = Simulation(scenario, requests)
    run = simulation.run(scenario.allocator[0], "audited", observer=auditor)
    assert auditor.events >= 2
    ended = run.summary["requests"]
    assert ended["finished"] + ended["rejected"] == len(requests)
    check_tokens(simulation)


@pytest.mark.parametrize("stages", [2, 4])
def test_lone_sequence_takes_one_step_per_four_accepted_tokens(
    stages: int,
) -> None:
    """The first token comes with the prompt, each of 25 steps brings four more."""
    made = drafting(stages, 1.0)
    requests = [Request("r", 0, 64, 101)]
    (run,) = kvsim.simulate(made, requests).runs
    told = run.summary["speculation"]
    assert told["accepted_tokens"] == 75
    assert told["mean_acceptance_length"] == 4
    plain = {key: table for key, table in made.items() if key != "speculative_config"}
    (without,) = kvsim.simulate(plain, requests).runs
    assert run.requests["finish_ps"][0] < 0.6 * without.requests["finish_ps"][0]


def test_observed_and_unobserved_runs_are_equal() -> None:
    requests = [Request(f"r{at}", at * 10**9, 100 + 30 * at, 80) for at in range(10)]
    (leaps,) = kvsim.simulate(drafting(3, 0.7), requests).runs
    (steps,) = kvsim.simulate(drafting(3, 0.7, max_steps=1), requests).runs
    assert leaps.requests.equals(steps.requests)
    assert leaps.memory.equals(steps.memory)
    scenario = Scenario.from_table(drafting(3, 0.7))
    simulation = Simulation(scenario, requests)
    watched = simulation.run(scenario.allocator[0], "watched", observer=Auditor())
    assert watched.requests.equals(leaps.requests)


def test_the_drafter_is_on_the_last_stage() -> None:
    """Its 16 layers, with 8 heads of 64 values, lie beside the 16 of the model's second half, with
    8 heads of 128 values. Its passes take time there alone.
    """
    memory = {"gpu_memory_utilization": 0.9}
    made = drafting(2, 0.7, memory=memory)
    simulation = Simulation(Scenario.from_table(made), [Request("r", 0, 8, 8)])
    blocks = [share.num_gpu_blocks for share in simulation.stages]
    assert simulation.pool.engine_num_gpu_blocks == min(blocks) == blocks[1]
    assert simulation.layout.bytes_per_token == 2 * 2 * (16 * 8 * 128 + 16 * 8 * 64)
    plain = {key: table for key, table in made.items() if key != "speculative_config"}
    without = Simulation(Scenario.from_table(plain), []).step_time
    times, shape = simulation.step_time, StepShape((), 4, 400, 100, 12)
    assert isinstance(times, StageTimes)
    assert isinstance(without, StageTimes)
    (first, last), (same, less) = times.stage_ps(shape), without.stage_ps(shape)
    assert first == same
    assert last > less


def test_stage_without_the_drafter_may_have_the_fewest_blocks() -> None:
    made = drafting(2, 0.7, memory={"gpu_memory_utilization": 0.9})
    made["model"]["pp_layer_partition"] = "26,6"
    simulation = Simulation(Scenario.from_table(made), [Request("r", 0, 40, 8)])
    assert simulation.layout.bytes_per_token == 2 * 2 * 26 * 8 * 128
    (run,) = simulation.result().runs
    assert run.summary["requests"]["finished"] == 1


EAGLE = {"method": "eagle", "num_speculative_tokens": 2, "acceptance_rate": 0.5}


def drafting_in_groups(model: str, stages: int) -> dict[str, Any]:
    """A drafter for a model with several block tables."""
    made = drafting(stages, 0.5, speculative_config=EAGLE, device={"name": "h200"})
    made["model"] |= {"name": model, "max_model_len": 8192, "tensor_parallel_size": 2}
    return made


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize(
    "model", ["gemma-3-27b", "gpt-oss-20b", "qwen3-next-80b-a3b", "jamba-v0.1"]
)
def test_drafts_with_several_block_tables_run_in_the_sized_blocks(model: str, stages: int) -> None:
    made = drafting_in_groups(model, stages)
    del made["memory"]
    simulation = Simulation(Scenario.from_table(made), [Request("r", 0, 200, 40)])
    (options,) = simulation.scenario.allocator
    plan = simulation.replica_spec(options).plan
    assert plan is not None
    sized = simulation.pool.engine_num_gpu_blocks
    assert simulation.pool.capacity_bytes // plan.block_bytes == sized
    assert any(group.draft_layers for group in plan.groups)
    (run,) = simulation.result().runs
    assert run.summary["speculation"]["verifications"] > 10


@pytest.mark.parametrize("model", ["gemma-3-27b", "qwen3-next-80b-a3b"])
def test_the_ledger_of_drafts_in_groups_sums_to_the_pool_at_every_event(model: str) -> None:
    made = drafting_in_groups(model, 2)
    requests = [Request(f"r{n}", n * 10**9, 100, 20) for n in range(6)]
    simulation = Simulation(Scenario.from_table(made), requests)
    (options,), auditor = simulation.scenario.allocator, Auditor()
    run = simulation.run(options, "audited", observer=auditor)
    assert auditor.events > 40
    assert run.summary["requests"]["finished"] == 6


def test_drafter_with_a_layer_kind_absent_on_the_first_stage_is_refused() -> None:
    """Its layers would be a group that the first stage has no layer of."""
    made = drafting_in_groups("gemma-3-27b", 2)
    made["speculative_config"] = EAGLE | {"method": "draft_model", "model": "llama-3.2-1b"}
    with pytest.raises(InputError, match="no layer of one of the groups") as refused:
        Simulation(Scenario.from_table(made), [Request("r", 0, 8, 8)])
    assert "speculative_config" in str(refused.value.remedy)
    assert "\n" not in str(refused.value)


def test_dflash_with_several_block_tables_and_stages_is_refused() -> None:
    made = drafting_in_groups("gemma-3-27b", 2)
    made["speculative_config"] = METHODS[5]
    with pytest.raises(InputError, match="dflash with several block tables"):
        Simulation(Scenario.from_table(made), [Request("r", 0, 8, 8)])
