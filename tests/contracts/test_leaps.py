"""A run of k steps equals k single steps: `==`, for every allocator, placement and scheduler."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cases import ALLOCATOR_TABLES, SCHEDULERS, streams

import kvsim
from kvsim.engine.schedulers import SCHEDULERS as REGISTERED_SCHEDULERS
from kvsim.memory import ALLOCATORS
from kvsim.request import Request


def outcome(tables: dict[str, Any], requests: list[Request], max_steps: int | None) -> Any:
    scenario = dict(tables) if max_steps is None else {**tables, "max_steps": max_steps}
    result = kvsim.simulate(scenario, requests)
    (run,) = result.runs
    summary = {key: value for key, value in run.summary.items() if key != "wall_s"}
    recorder = run.recorder
    sums = (recorder.time_sum, recorder.step_sum, recorder.running_sum, recorder.total_ps)
    return summary, sums, run.requests.to_dict("records")


@pytest.mark.parametrize(
    "scheduler", SCHEDULERS, ids=lambda table: "-".join(map(str, table.values()))
)
@pytest.mark.parametrize(
    "allocator", ALLOCATOR_TABLES, ids=lambda table: "-".join(map(str, table.values()))
)
@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams(), tokens=st.sampled_from([1024, 1500, 2048]))
def test_runs_of_k_steps_equal_single_steps(
    tables: Any, allocator: Any, scheduler: Any, requests: list[Request], tokens: int
) -> None:
    made = tables(
        allocator=[allocator],
        scheduler=scheduler,
        memory={"kv_cache_tokens": tokens},
        model={"name": "opt-125m", "max_model_len": 1024},
    )
    assert outcome(made, requests, None) == outcome(made, requests, 1)
    assert outcome(made, requests, 3) == outcome(made, requests, 1)


def test_every_allocator_and_scheduler_is_compared() -> None:
    assert {table["kind"] for table in ALLOCATOR_TABLES} == set(ALLOCATORS)
    assert {table["kind"] for table in SCHEDULERS} == set(REGISTERED_SCHEDULERS)
