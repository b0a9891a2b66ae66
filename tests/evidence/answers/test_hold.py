"""Tests of `evidence.answers`: random scenarios by seed, and tables of held answers."""

import pytest

from evidence.answers.draw import drawn
from evidence.answers.hold import HeldAnswer, doctor_row, table_of
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.backends import BACKENDS
from kvsim.whatif.runner import TaskRunner


@pytest.mark.parametrize("seed", [100, 201, 305])
def test_equal_seeds_draw_equal_valid_scenarios(seed: int) -> None:
    table = drawn(seed, 40)
    assert table == drawn(seed, 40) != drawn(seed + 1, 40)
    assert Simulation(Scenario.from_table(table)).stream.requests


def test_answers_row_has_predicted_and_observed_result() -> None:
    row = doctor_row(301, 20, TaskRunner(BACKENDS.get("processes")(jobs=1)))
    assert row.scenario == 301
    assert (row.held is None) == (row.seen == "")


def test_answers_table_counts_scenarios_without_advice() -> None:
    rows = [HeldAnswer(1, "a", "b", True), HeldAnswer(2, "c", "d", False)]
    said = table_of("doctor", [*rows, HeldAnswer(3, "healthy", "", None)])
    assert "1 of 2 answers hold; of 3 scenarios 1 got no advice." in said
