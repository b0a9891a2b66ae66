"""The report of a real run: recorded values, summary and figures agree."""

import math

import numpy as np
import pytest
from support.scenarios import steady

from kvsim import simulate
from kvsim.report import latency
from kvsim.report.address_map import address_maps
from kvsim.report.figures import FIGURES
from kvsim.report.page import make_page
from kvsim.report.words import paragraphs
from kvsim.request import Request
from kvsim.results import store
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

SCENARIO = steady(150)


@pytest.fixture(scope="module")
def simulated():
    return simulate(SCENARIO)


@pytest.mark.parametrize("name", ["ttft_s", "tpot_s", "e2e_s"])
def test_drawn_waits_equal_the_summary(simulated, name):
    for run in simulated.runs:
        values = getattr(latency, name)(run.requests)
        assert math.isclose(values.mean(), run.summary[name]["mean"], rel_tol=1e-12)
        assert math.isclose(np.quantile(values, 0.99), run.summary[name]["p99"], rel_tol=1e-12)


def test_drawn_areas_equal_time_means_of_the_summary(simulated):
    plot = FIGURES.get("ledger")().draw(simulated)
    for row, run in enumerate(simulated.runs, start=1):
        for trace in plot.data:
            if trace.stackgroup == str(row):
                mean = 100 * run.summary["memory"]["time_mean"][trace.name]
                # A stretch of steps is drawn as a straight line; the summary knows each step.
                assert math.isclose(np.mean(trace.y), mean, abs_tol=0.1)


def test_a_simulated_result_is_stored_and_read_back(simulated, tmp_path):
    page = make_page(simulated)
    store.write(tmp_path, simulated, page)
    back = store.read(tmp_path)
    assert back.summary() == simulated.summary()
    for was, now in zip(simulated.runs, back.runs, strict=True):
        assert now.memory.equals(was.memory)
    assert make_page(back) == page
    assert paragraphs(back) == paragraphs(simulated)


def test_model_without_kv_per_token_has_no_address_map():
    states = {
        "model": {"name": "mamba-2.8b"},
        "device": {"name": "a100-40gb"},
        "memory": {"kv_cache_bytes": 1 << 30},
        "allocator": [{"kind": "radix"}],
        "scheduler": {"kind": "sglang"},
        "step_time": {"kind": "linear", "base_us": 1000},
    }
    simulation = Simulation(Scenario.from_table(states), [Request("r", 0, 100, 10)])
    traced = simulation.result(addresses=True)
    assert len(traced.runs[0].table("addresses"))
    assert address_maps(traced, ({"r": 0},)) == [None]
