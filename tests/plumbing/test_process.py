"""Garbage is looked for seldom while a simulation runs, in any process, and then as before."""

import gc
from collections.abc import Iterator

import pytest

from kvsim.plumbing.process import SELDOM, seldom_collecting
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before, enabled = gc.get_threshold(), gc.isenabled()
    yield
    gc.set_threshold(*before)
    (gc.enable if enabled else gc.disable)()


def test_simulation_restores_garbage_collection_thresholds() -> None:
    gc.set_threshold(500, 5, 7)
    seen = []
    simulation = Simulation(Scenario.load("chat", ["workload.num_requests=20"]))
    simulation.result(lambda label, done, total: seen.append(gc.get_threshold()))
    assert set(seen) == {SELDOM}
    assert gc.get_threshold() == (500, 5, 7)
    with pytest.raises(ZeroDivisionError), seldom_collecting():
        _ = 1 / 0
    assert gc.get_threshold() == (500, 5, 7)


def test_disabled_garbage_collection_stays_disabled() -> None:
    gc.set_threshold(0)
    with seldom_collecting():
        assert gc.get_threshold()[0] == 0


def test_simulated_requests_leave_no_reference_cycles() -> None:
    """So that memory is bounded however seldom anybody looks."""
    gc.disable()
    found = []
    for requests in (50, 250):
        simulation = Simulation(Scenario.load("chat", [f"workload.num_requests={requests}"]))
        gc.collect()
        result = simulation.result()
        found.append(gc.collect())
        assert result.runs
    assert found[1] < found[0] + 100
