"""Scenarios with several engines: which of them a what-if tool supports, and their summary."""

from collections.abc import Callable
from typing import NamedTuple

from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.errors import InputError
from kvsim.results.result import Run
from kvsim.results.summary import RunSummary
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.cache_curve.order import came_to
from kvsim.whatif.watch import QueueWatch


def check_alike(scenario: Scenario, command: str) -> None:
    """Raise InputError unless the scenario is one engine, or a [fleet] of equal replicas."""
    if scenario.disaggregation is not None:
        raise scenario.located(
            InputError(
                f"kvsim {command} examines equal engines, and these are of two kinds",
                where="disaggregation",
                remedy="leave the table out, or ask `kvsim capacity`, which takes both kinds",
            )
        )
    fleet = scenario.fleet
    for key, remedy in (
        ("group", "give fleet.replicas instead"),
        ("autoscaler", "leave it out, and give fleet.replicas"),
    ):
        if fleet is not None and getattr(fleet, key):
            raise scenario.located(
                InputError(
                    f"kvsim {command} examines a fleet with a number of equal replicas",
                    where=f"fleet.{key}",
                    remedy=remedy,
                )
            )


def check_alone(scenario: Scenario, command: str) -> None:
    """Raise InputError unless the scenario is one engine."""
    check_alike(scenario, command)
    if scenario.fleet is not None:
        raise scenario.located(
            InputError(
                f"kvsim {command} examines one engine",
                where="fleet",
                remedy="leave the table out, or run `kvsim sweep` over the whole fleet",
            )
        )


def num_replicas(scenario: Scenario) -> int:
    """Number of equal replicas that serve the scenario's requests: 1 without [fleet]."""
    return 1 if scenario.fleet is None else scenario.fleet.replicas or 1


def served(simulation: Simulation, options: AllocatorOptions, label: str) -> RunSummary:
    """The summary of all engines that serve the requests: of the single engine, or of a whole
    fleet.
    """
    if simulation.fleet is None:
        return simulation.run(options, label).summary
    return simulation.fleet.runs(options, label, simulation.stream).summary


class WatchedReplica(NamedTuple):
    """One engine with an observer. simulation: of the engine and the requests sent to it. number:
    in its fleet, from 0; None for a single engine.
    """

    simulation: Simulation
    run: Run
    number: int | None


def busiest(
    simulation: Simulation,
    options: AllocatorOptions,
    label: str,
    watch: Callable[[], QueueWatch],
) -> tuple[WatchedReplica, QueueWatch]:
    """The replica of a fleet in which requests spent the most time in total, with its observer."""
    if simulation.fleet is None:
        alone = watch()
        run = simulation.run(options, label, observer=alone)
        return WatchedReplica(simulation, run, None), alone
    watches: dict[int, QueueWatch] = {}

    def watch_of(number: int) -> QueueWatch:
        watches[number] = watch()
        return watches[number]

    runs = simulation.fleet.runs(options, label, simulation.stream, observer_of=watch_of).runs
    number = max(range(len(runs)), key=lambda at: _spent_ps(runs[at]))
    scenario = simulation.scenario.model_copy(update={"fleet": None})
    own = Simulation(scenario, [], in_fleet=True)
    own.stream = came_to(runs[number], simulation.stream)
    return WatchedReplica(own, runs[number], number), watches[number]


def _spent_ps(run: Run) -> int:
    assert run.recorder is not None  # it has just been simulated
    return int(run.recorder.waiting_sum + run.recorder.running_sum)
