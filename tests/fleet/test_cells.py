"""Cells of a fleet: simulated separately or together, on every backend, results are equal."""

from collections import defaultdict
from typing import Any

import pytest
from support import fleets

from kvsim.fleet import cells
from kvsim.plumbing.errors import InputError
from kvsim.results.result import Result
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation, simulate
from kvsim.whatif.backends import BACKENDS
from kvsim.whatif.fleet_cells import SpreadCells

TABLE: dict[str, Any] = {
    "model": {"name": "llama-2-7b"},
    "device": {"name": "a100-80gb"},
    "memory": {"kv_cache_tokens": 8192},
    "allocator": [{"kind": "paged"}],
    "step_time": {"kind": "linear", "base_us": 8000, "prefill_token_us": 60, "decode_seq_us": 50},
    "workload": {
        "kind": "synthetic",
        "num_requests": 240,
        "arrivals": {"kind": "poisson", "rate_per_s": 30.0},
        "prompt": {"kind": "uniform", "min_tokens": 50, "max_tokens": 900},
        "output": {"kind": "geometric", "mean": 60},
    },
}
CHATS = fleets.TABLE["workload"]


def scenario(workload: dict[str, Any] | None = None, **fleet: Any) -> dict[str, Any]:
    return {**TABLE, "workload": workload or TABLE["workload"], "fleet": {"replicas": 4, **fleet}}


def numbers(result: Result) -> tuple[Any, ...]:
    """All results that do not depend on the machine: of the fleet, of each replica, and its
    accounting.
    """
    books = [(run.label, run.recorder) for run in result.runs]
    return (
        result.fleets[0].simulated(),
        [run.summary.simulated() for run in result.runs],
        [(label, each.series.tobytes(), each.finish_ps.tobytes()) for label, each in books if each],
    )


def test_round_robin_fleet_equals_separate_runs_of_its_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the same bits as on one clock, also where cells deal the requests out before."""
    apart = numbers(simulate(scenario()))
    in_cells = numbers(simulate(scenario(cells=2)))
    monkeypatch.setattr(cells, "_in_turn", lambda options, stream: False)
    assert numbers(simulate(scenario())) == apart == in_cells
    assert numbers(simulate(scenario(cells=4))) == apart


@pytest.mark.parametrize(
    "fleet",
    [{"router": "least-requests"}, {"regret": True}, {"failure": [{"at_s": 1, "replica": 0}]}],
)
def test_router_that_reads_replicas_prevents_separate_runs(fleet: dict[str, Any]) -> None:
    """Replicas are simulated separately only if no router reads their state and no request waits
    for one on another replica.
    """
    simulation = Simulation(Scenario.from_table(scenario(CHATS, **fleet)))
    assert simulation.fleet is not None
    assert len(cells.cells_of(simulation.fleet.options, 4, simulation.stream)) == 1


def test_conversations_stay_in_their_cell() -> None:
    simulation = Simulation(Scenario.from_table(scenario(CHATS, cells=3, router="cache-aware")))
    assert simulation.fleet is not None
    found = cells.cells_of(simulation.fleet.options, 4, simulation.stream)
    assert [cell.numbers for cell in found] == [(0, 3), (1,), (2,)]
    where = defaultdict(set)
    for at, cell in enumerate(found):
        for request in cell.stream.requests:
            where[request.session].add(at)
    assert all(len(each) == 1 for each in where.values())
    shares = [len({each.session for each in cell.stream.requests}) for cell in found]
    assert sum(shares) == CHATS["num_sessions"]
    assert max(shares) - min(shares) <= 1
    result = simulation.result()
    assert result.fleets[0].requests.finished == len(simulation.stream.requests)
    assert [run.label for run in result.runs] == [f"paged #{number}" for number in range(4)]


@pytest.mark.parametrize("kind", ["processes", "dask", "ray"])
def test_every_backend_gives_the_same_fleet_results(kind: str) -> None:
    if kind != "processes":
        pytest.importorskip("distributed" if kind == "dask" else kind)
    table = scenario(CHATS, cells=2, router="cache-aware")
    simulation = Simulation(Scenario.from_table(table))
    backend = BACKENDS.parse({"kind": kind, "jobs": 2}, "--backend")
    spread = simulation.result(spread=SpreadCells(simulation, backend))
    assert numbers(spread) == numbers(simulate(table))


@pytest.mark.parametrize(
    ("fleet", "workload", "words"),
    [
        ({"cells": 5}, {}, "more cells than replicas"),
        ({"cells": 2, "failure": [{"at_s": 1, "replica": 0}]}, {}, "do not start or die"),
        ({"cells": 2, "autoscaler": {"kind": "queue"}}, {}, "do not start or die"),
        ({"cells": 2}, {"max_concurrency": 8}, "limit of requests in flight"),
    ],
)
def test_fleet_cells_with_shared_features_are_refused(
    fleet: dict[str, Any], workload: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        simulate(scenario({**TABLE["workload"], **workload}, **fleet))


def test_cells_of_a_scenario_without_replicas_are_refused() -> None:
    simulation = Simulation(Scenario.from_table(TABLE))
    with pytest.raises(InputError, match="cells of a fleet"):
        SpreadCells(simulation, BACKENDS.parse({"kind": "processes"}, "--backend"))
