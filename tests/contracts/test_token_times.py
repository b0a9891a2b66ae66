"""Reported gaps equal the times between successive tokens, followed token by token, for every
allocator, placement and scheduler.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cases import ALLOCATOR_TABLES, SCHEDULERS, known_to, streams
from support.outcomes import CROWDED, check_tokens, unless_thrashing

from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation


@pytest.mark.parametrize(
    "scheduler", SCHEDULERS, ids=lambda table: "-".join(map(str, table.values()))
)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams(), allocator=st.sampled_from(ALLOCATOR_TABLES))
@unless_thrashing
def test_token_gaps_are_times_between_successive_tokens(
    tables: Any, scheduler: Any, allocator: Any, requests: list[Request]
) -> None:
    made = tables(
        allocator=[known_to(scheduler, allocator)],
        scheduler=scheduler,
        **CROWDED,
        max_steps=1,
    )
    check_tokens(Simulation(Scenario.from_table(made), requests))
