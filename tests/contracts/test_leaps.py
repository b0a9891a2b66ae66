"""A run of k steps equals k single steps: `==`, for every allocator, placement and scheduler."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cases import ALLOCATOR_TABLES, SCHEDULERS, VICTIM_SCHEDULERS, known_to, streams
from support.outcomes import CROWDED, STEP_TIME, outcome
from support.pairs import pairs

from kvsim.request import Request


@pytest.mark.parametrize(("allocator", "scheduler"), pairs(ALLOCATOR_TABLES, SCHEDULERS))
@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams(), tokens=st.sampled_from([1024, 1500, 2048]))
def test_runs_of_k_steps_equal_single_steps(
    tables: Any, allocator: Any, scheduler: Any, requests: list[Request], tokens: int
) -> None:
    made = tables(
        allocator=[known_to(scheduler, allocator)],
        scheduler=scheduler,
        memory={"kv_cache_tokens": tokens},
        model={"name": "opt-125m", "max_model_len": 1024},
        step_time=STEP_TIME,
    )
    single = outcome(made, requests, 1)
    assert outcome(made, requests, None) == single
    assert outcome(made, requests, 3) == single


@pytest.mark.parametrize(
    "scheduler", VICTIM_SCHEDULERS, ids=lambda table: f"{table['kind']}-{table['victim']}"
)
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams())
def test_k_steps_equal_single_steps_under_every_victim_rule(
    tables: Any, scheduler: Any, requests: list[Request]
) -> None:
    for allocator in ALLOCATOR_TABLES[0], {"kind": "doubling", "initial_tokens": 32}:
        made = tables(
            allocator=[allocator],
            scheduler=scheduler,
            **CROWDED,
        )
        assert outcome(made, requests, None) == outcome(made, requests, 1)
