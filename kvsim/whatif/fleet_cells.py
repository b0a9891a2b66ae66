"""Simulate the cells of a fleet (groups of replicas) on the backends that sweeps use."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.fleet.cells import FleetCell
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.simulation.fleet import CellRuns
from kvsim.whatif.backends import BackendOptions


class CellTask(NamedTuple):
    """A simulation of one cell under one allocator. key: name of the cell. table: the scenario
    without its workload. place: index of the allocator in the scenario. addresses: see
    `FleetSimulation.runs`.
    """

    key: str
    table: dict[str, Any]
    folder: str
    place: int
    cell: FleetCell
    addresses: bool

    def rows(self) -> tuple[CellRuns]:
        """Simulate the cell, and return its runs."""
        simulation = Simulation(Scenario.from_table(self.table, Path(self.folder)), ())
        assert simulation.fleet is not None
        options, label = simulation.scenario.allocator[self.place], simulation.labels[self.place]
        return (simulation.fleet.cell(options, label, self.cell, addresses=self.addresses),)


class SpreadCells:
    """Simulates the cells of a scenario's fleet on a backend; `FleetSimulation.runs` calls it."""

    def __init__(self, simulation: Simulation, backend: BackendOptions) -> None:
        scenario = simulation.scenario
        if scenario.fleet is None:
            raise InputError(
                "only the cells of a fleet are run side by side",
                where="--backend",
                remedy="leave --backend and --jobs out, or give fleet.replicas and fleet.cells",
            )
        self._labels, self._backend = simulation.labels, backend
        self._table = scenario.model_dump(mode="json", exclude_none=True, exclude={"workload"})
        self._folder = str(scenario.folder.resolve())

    def __call__(self, label: str, cells: list[FleetCell], addresses: bool) -> Iterator[CellRuns]:
        place = self._labels.index(label)
        tasks = [
            CellTask(str(at), self._table, self._folder, place, cell, addresses)
            for at, cell in enumerate(cells)
        ]
        found: dict[str, CellRuns] = {}
        for outcome in self._backend.run(tasks):
            if outcome.error is not None:
                where = f"cell {outcome.key} of the fleet"
                if outcome.wrong_input:
                    raise InputError(outcome.error, where=where)
                raise InvariantError(f"{where}: {outcome.error}")
            (found[outcome.key],) = outcome.rows
        return (found[task.key] for task in tasks)
