"""What-if commands on fleets; several kinds of engines are refused before any run."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.chats import chats
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.toml import to_toml
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.backends import BACKENDS
from kvsim.whatif.cache_curve.lru import lru_curve
from kvsim.whatif.cache_curve.order import each_in_order
from kvsim.whatif.deployments import busiest
from kvsim.whatif.doctor.examine import Doctor
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.doctor.subject import subject_of
from kvsim.whatif.pairs import Trials
from kvsim.whatif.replicates import Replicate
from kvsim.whatif.runner import TaskRunner
from kvsim.whatif.watch import QueueWaits

COMMANDS = {
    "doctor": ["--repeat", "3"],
    "advise": ["--repeat", "3"],
    "attribute": [],
    "cache": ["--tiers"],
    "speculation": [],
}
AUTOSCALER = {"kind": "requests", "ongoing": 4.0, "max_replicas": 4}
SEVERAL = {
    "disaggregation": {"disaggregation": {"link_gb_per_s": 25.0}},
    r"fleet\.group": {"fleet": {"group": [{"replicas": 2}]}},
    r"fleet\.autoscaler": {"fleet": {"replicas": 2, "autoscaler": AUTOSCALER}},
}


def fleet(tables: Any, rate: float = 36.0, replicas: int = 3, **parts: Any) -> dict[str, Any]:
    """A fleet of `replicas` replicas for 360 short chats that arrive at `rate` per second."""
    table = chats(tables, fleet={"replicas": replicas}, **parts)
    table["workload"]["arrivals"]["rate_per_s"] = rate
    table["workload"]["num_requests"] = 360
    return table


def written(table: dict[str, Any], folder: Path) -> str:
    (folder / "several.toml").write_text(to_toml(table))
    return str(folder / "several.toml")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("named", SEVERAL)
def test_several_kinds_of_engines_are_refused_before_any_run(
    command: str, named: str, tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_run(*_: Any, **__: Any) -> None:
        raise AssertionError("a simulation was run")

    scenario = written(chats(tables, **SEVERAL[named]), tmp_path)
    monkeypatch.setattr(Simulation, "run", no_run)
    monkeypatch.setattr("kvsim.simulation.fleet.FleetSimulation.runs", no_run)
    arguments = [command, scenario, *COMMANDS[command]]
    with pytest.raises(InputError, match=rf"{named}: kvsim {command} examines") as caught:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("arguments", [["speculation"], ["cache", "--policies"]])
def test_commands_on_one_engine_refuse_a_fleet(
    arguments: list[str], tables: Any, tmp_path: Path
) -> None:
    scenario = written(fleet(tables), tmp_path)
    with pytest.raises(InputError, match=r"fleet: kvsim .* examines one engine"):
        CliRunner().invoke(app, [arguments[0], scenario, *arguments[1:]], catch_exceptions=False)


def test_doctor_examines_the_busiest_replica_with_its_requests(tables: Any) -> None:
    table = fleet(tables)
    case = ExaminedRun(table, Path())
    whole = Simulation(Scenario.from_table(table))
    assert whole.fleet is not None
    runs = whole.fleet.runs(case.allocator, "paged", whole.stream).runs
    assert case.number is not None
    ours = runs[case.number]
    assert ours.recorder is not None
    assert case.summary.ttft_s.mean == ours.summary.ttft_s.mean
    spent = [r.recorder.waiting_sum + r.recorder.running_sum for r in runs if r.recorder]
    assert spent[case.number] == max(spent)
    assert case.num_requests == ours.summary.requests.submitted == 120


def test_doctor_calls_a_large_fleet_healthy_and_one_replica_unhealthy(tables: Any) -> None:
    def rest(table: dict[str, Any]) -> tuple[bool, int | None]:
        subject = subject_of(table, Path(), None, 1000, 9)
        runner = TaskRunner(BACKENDS.get("processes")(jobs=1))
        found = Doctor(subject, runner, repeat=3).diagnose()
        return found.healthy, found.case.number

    healthy, number = rest(fleet(tables))
    assert healthy
    assert number is not None
    assert not rest(fleet(tables, replicas=1))[0]


def test_fleet_waiting_reasons_sum_over_its_replicas(tables: Any) -> None:
    table = fleet(tables, scheduler={"kind": "continuous", "max_num_seqs": 2})
    trials = Trials(TaskRunner(BACKENDS.get("processes")(jobs=1)), Path())
    (row,) = trials.rows(table, [Replicate("seed 0", 0, None)], waits=True)
    found = QueueWaits(*(row[f"waits.{name}"] for name in QueueWaits._fields))
    whole = row["waiting_mean"] / (row["waiting_mean"] + row["running_mean"])
    assert found.limit > 0.05
    assert found.total == pytest.approx(whole, rel=1e-6)


def test_advice_on_a_fleet_names_its_bottleneck(tables: Any, tmp_path: Path) -> None:
    table = fleet(tables, scheduler={"kind": "continuous", "max_num_seqs": 2})
    table["workload"]["num_requests"] = 90
    arguments = ["advise", written(table, tmp_path), "--repeat", "3", "--jobs", "1", "--json"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    answer = json.loads(result.stdout)
    assert answer["standing"]["load"]["binds"] == "limit"
    assert "scheduler.max_num_seqs" in answer["taken"]
    assert any("3 replicas together" in note for note in answer["notes"])


def test_attribute_covers_all_replicas_of_a_fleet(tables: Any, tmp_path: Path) -> None:
    scenario = written(fleet(tables, allocator=[{"kind": "max-buffer"}]), tmp_path)
    result = CliRunner().invoke(app, ["attribute", scenario, "--json"], catch_exceptions=False)
    (run,) = json.loads(result.stdout)["runs"]
    simulation = Simulation(Scenario.load(scenario))
    assert simulation.fleet is not None
    options = simulation.scenario.allocator[0]
    whole = simulation.fleet.runs(options, "max-buffer", simulation.stream).summary
    assert run["actual"]["running"] == pytest.approx(whole.running_mean)
    assert run["actual"]["e2e_s"] == pytest.approx(whole.e2e_s.mean)


def test_cache_curve_of_a_fleet_has_one_cache_per_replica(tables: Any, tmp_path: Path) -> None:
    prefixes = [{"tokens": {"kind": "fixed", "tokens": 64}, "count": 6, "share": 1.0}]
    table = fleet(tables)
    table["allocator"] = [{"kind": "paged", "enable_prefix_caching": True}]
    table["workload"]["prefixes"] = prefixes
    scenario = written(table, tmp_path)
    simulation = Simulation(Scenario.load(scenario))
    streams = each_in_order(simulation)
    assert sorted(r.id for s in streams for r in s) == sorted(
        r.id for r in simulation.stream.requests
    )
    curves = [lru_curve(requests, 16, outputs=True) for requests in streams]
    hits = sum(each.hits(8) for each in curves)
    result = CliRunner().invoke(
        app, ["cache", scenario, "--at", "128", "--json"], catch_exceptions=False
    )
    answer = json.loads(result.stdout)
    assert answer["replicas"] == 3
    (size,) = answer["sizes"]
    assert size["lru"] == pytest.approx(hits / answer["query_tokens"])
    assert size["lru"] > 0


def test_single_engine_is_not_examined_as_a_replica(tables: Any) -> None:
    simulation = Simulation(Scenario.from_table(chats(tables)))
    case = ExaminedRun(chats(tables), Path())
    watched, _ = busiest(simulation, case.allocator, "paged", case._watch)
    assert watched.number is None
    assert watched.simulation is simulation
