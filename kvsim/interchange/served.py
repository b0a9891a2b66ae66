"""The server that a scenario describes, for exports that need no run; in a fleet, one replica."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvsim.fleet.routers import ROUTERS
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

_RANKS = "vllm-dp"  # the balancer before the data-parallel ranks of one server


class ServedScenario(NamedTuple):
    """The server of one allocator of a scenario.

    scenario is resolved, as for this replica alone. allocator is its table in [[allocator]]. label
    is the label that a run of it would have.
    """

    scenario: Mapping[str, Any]
    allocator: Mapping[str, Any]
    label: str

    @property
    def scheduler(self) -> Mapping[str, Any]:
        """The allocator's own scheduler, or the scenario's."""
        found: Mapping[str, Any] = self.allocator.get("scheduler") or self.scenario["scheduler"]
        return found

    @property
    def capacity_bytes(self) -> int:
        """The size of the KV pool on one GPU, in bytes."""
        return int(self.scenario["provenance"]["pool"]["capacity_bytes"])


def server_of(scenario: Scenario, label: str | None) -> ServedScenario:
    """The server that `label` (of an allocator or a replica) chooses; None: the first allocator's.

    InputError if the replicas differ and no label is given.
    """
    simulation = Simulation(scenario, [])
    if simulation.fleet is None:
        _, label = simulation.chosen(label)
        return _taken(simulation.resolved(), simulation.labels.index(label), label)
    kinds = simulation.fleet.kinds
    places = {
        f"{each} #{number}": (at, number)
        for at, each in enumerate(simulation.labels)
        for number in range(len(kinds))
    }
    if scenario.fleet is not None and not scenario.fleet.group:
        places |= {each: (at, 0) for at, each in enumerate(simulation.labels)}
        label = label or simulation.labels[0]
    if label not in places:
        raise InputError(
            "the replicas differ, and a command is of one of them"
            if label is None
            else "no replica or allocator has this label",
            where="--allocator",
            value=label,
            remedy=f"name one: {', '.join(places)}",
        )
    at, number = places[label]
    kind, its_own = kinds[number]
    return _taken(_with_ranks(kind.resolved(), scenario), 0 if its_own else at, label)


def _taken(tables: dict[str, Any], at: int, label: str) -> ServedScenario:
    return ServedScenario(tables, tables["allocator"][at], label)


def _with_ranks(tables: dict[str, Any], scenario: Scenario) -> dict[str, Any]:
    """The tables of a replica; if it is a data-parallel rank, with the number of ranks added."""
    fleet = scenario.fleet
    if fleet is None or fleet.group or ROUTERS.name_of(fleet.router) != _RANKS:
        return tables
    ranks = (fleet.replicas or 1) // fleet.cells
    return {**tables, "model": {**tables["model"], "data_parallel_size": ranks}}
