"""Every allocator names options that remove a class of waste, which is then zero."""

from typing import Any

import pytest
from support.cases import ALLOCATOR_TABLES

from kvsim.memory.options import WASTE
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

REQUESTS = [Request(f"r{i}", 0, 37 + 13 * (i % 7), 20 + 31 * (i % 5), 260) for i in range(60)]


@pytest.mark.parametrize(
    "allocator", ALLOCATOR_TABLES, ids=lambda table: "-".join(map(str, table.values()))
)
def test_waste_class_that_a_setting_removes_is_always_zero(
    tables: Any, allocator: dict[str, Any]
) -> None:
    scenario = Scenario.from_table(
        tables(
            allocator=[allocator],
            scheduler={"kind": "orca", "max_num_batched_tokens": 1024},
            model={"name": "opt-125m", "max_model_len": 1024},
        )
    )
    simulation = Simulation(scenario, REQUESTS)
    removals = list(scenario.allocator[0].removals())
    classes = [name for removal in removals for name in removal.classes]
    assert removals
    assert len(set(classes)) == len(classes)
    assert set(classes) <= set(WASTE)
    assert all(removal.options is not None for removal in removals[:-1])
    gone: list[str] = []
    for removal in removals:
        gone += removal.classes
        if removal.options is not None:
            summary = simulation.run(removal.options, "without").summary
            shares = summary["memory"]["time_mean"]
            # An exact buffer has a slot for the last token, which is never computed.
            one_slot_each = summary["running_mean"] / summary["memory"]["capacity_tokens"]
            assert all(shares[name] <= one_slot_each for name in gone), removal
