"""Tasks and answers of worker processes: plain data that can be pickled and sent through a pipe."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kvsim.explore.confined import said
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.keys import put
from kvsim.request import Request
from kvsim.results.summary import RunSummary
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

LEAD = "shares"  # the figure of the first screen
PREVIEWED = 100  # requests of the first picture, which takes about a second
Show = Callable[[Any], None]  # a first answer, of fewer requests
Tell = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much


class WorkerTask(Protocol):
    """A task for a worker. Raises InputError if it cannot run; the callback `tell` may raise to
    cancel it.
    """

    @property
    def table(self) -> Mapping[str, Any]: ...
    @property
    def base_table(self) -> Mapping[str, Any]: ...
    @property
    def num_points(self) -> int: ...

    def do(self, tell: Tell, show: Show | None = None) -> Any: ...


class RunTask(NamedTuple):
    """Simulate a scenario and compute the report's sentences and figures. base_table: tables of its
    starting point.
    """

    table: dict[str, Any]
    folder: Path
    base_table: Mapping[str, Any]

    @property
    def num_points(self) -> int:
        """Number of simulations."""
        return 1

    def do(self, tell: Tell, show: Show | None = None) -> dict[str, Any]:
        """The report's `contents`, and every run's entry of summary.json as `runs`. show: called
        with a preview (the same for the first requests only) if there are many requests.
        """
        simulation = Simulation(Scenario.from_table(self.table, self.folder))
        requests = simulation.stream.requests
        if show is not None and len(requests) >= 3 * PREVIEWED:
            first = _first(requests)
            preview = Simulation(Scenario.from_table(self.table, self.folder), first)
            show({**self._first_screen(preview, tell), "previewed": (len(first), len(requests))})
        return self._drawn(simulation, tell)

    def _first_screen(self, simulation: Simulation, tell: Tell) -> dict[str, Any]:
        """Only the leading figure, without addresses, to show a picture as soon as possible."""
        from kvsim.report.page import contents

        result = simulation.result(tell)
        return {**contents(result, [LEAD]), "runs": [run.summary for run in result.runs]}

    def _drawn(self, simulation: Simulation, tell: Tell) -> dict[str, Any]:
        from kvsim.report.page import contents

        result = simulation.result(tell, addresses=True)
        tell("drawing", 0, 1)
        return {**contents(result), "runs": [run.summary for run in result.runs]}


def _first(requests: Sequence[Request]) -> list[Request]:
    """The first requests, without those that follow a request that is not included."""
    first: dict[str, Request] = {}
    groups: set[str | None] = set()
    for request in requests[:PREVIEWED]:
        if request.after is None or request.after in first or request.after in groups:
            first[request.id] = request
            groups.add(request.group)
    return list(first.values())


class SweepTask(NamedTuple):
    """Simulate a scenario once for each value of one key. base_table: tables of its starting
    point.
    """

    table: dict[str, Any]
    folder: Path
    base_table: Mapping[str, Any]
    key: str
    values: tuple[Any, ...]

    @property
    def num_points(self) -> int:
        """Number of simulations."""
        return len(self.values)

    def do(self, tell: Tell, show: Show | None = None) -> "list[CurvePoint]":
        """Run the sweep: one point for each value."""
        return [self._point(index, tell) for index in range(len(self.values))]

    def _point(self, index: int, tell: Tell) -> "CurvePoint":
        value, count = self.values[index], len(self.values)

        def progressed(label: str, done: int, total: int) -> None:
            tell(f"{self.key} = {value}: {label}", index * total + done, count * total)

        table = deepcopy(self.table)
        put(table, self.key, value, "sweep")
        try:
            result = Simulation(Scenario.from_table(table, self.folder)).result(progressed)
        except InputError as error:
            return CurvePoint(value, (), said(error, self.table, self.base_table))
        return CurvePoint(value, tuple(run.summary for run in result.runs), "")


class CurvePoint(NamedTuple):
    """A swept value and the runs' entries of summary.json for it, or the error."""

    value: Any
    runs: tuple[RunSummary, ...]
    fault: str
