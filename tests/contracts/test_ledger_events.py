"""At every event the ledger sums to the capacity and every allocator's books agree."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.auditor import Auditor
from support.cases import ALLOCATOR_TABLES, SCHEDULERS, streams
from support.outcomes import unless_thrashing

from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation


@pytest.mark.parametrize(
    "allocator", ALLOCATOR_TABLES, ids=lambda table: "-".join(map(str, table.values()))
)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams())
@unless_thrashing
def test_the_ledger_is_consistent_at_every_event(
    tables: Any, allocator: dict[str, Any], requests: list[Request]
) -> None:
    for scheduler in SCHEDULERS[:3]:
        scenario = Scenario.from_table(
            tables(
                allocator=[allocator],
                scheduler=scheduler,
                memory={"kv_cache_tokens": 1024},
                model={"name": "opt-125m", "max_model_len": 1024},
            )
        )
        auditor = Auditor()
        simulation = Simulation(scenario, requests)
        options = scenario.allocator[0]
        run = simulation.run(options, "audited", observer=auditor)
        assert auditor.events >= 2
        requests_by_end = run.summary["requests"]
        assert requests_by_end["submitted"] == len(requests)
        assert requests_by_end["finished"] + requests_by_end["rejected"] == len(requests)
