"""Context of every callback of the page: starting points and worker processes."""

from pathlib import Path
from typing import Any, NamedTuple

from kvsim.explore.confined import check_paths
from kvsim.explore.starting_points import StartingPoint
from kvsim.explore.state import ScenarioState
from kvsim.explore.task import RunTask, SweepTask
from kvsim.explore.worker_pool import WorkerPool
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.keys import assignment
from kvsim.whatif.sweep.axes import parse_axis


class PageContext(NamedTuple):
    """Shared state of all callbacks. starting_points: by name. default: name of the starting point
    for an empty address.
    """

    starting_points: dict[str, StartingPoint]
    workers: WorkerPool
    default: str

    def run_task(self, state: ScenarioState) -> RunTask:
        """The task that simulates this state; InputError for a path that the page may not read."""
        return RunTask(*self._of(state))

    def sweep_task(self, state: ScenarioState, sweep: str) -> SweepTask:
        """The task that simulates a sweep such as `a.b=1:8:4`; InputError if it is not a sweep."""
        key, _ = assignment(sweep, "sweep")
        values = tuple(value for (value,) in parse_axis(sweep, "sweep").rows)
        if len(values) < 2 or not all(type(value) in (int, float) for value in values):
            raise InputError(
                "a sweep goes from one number to another",
                where=f"sweep {key}",
                value=sweep.partition("=")[2],
                limit="2 values or more",
            )
        return SweepTask(*self._of(state), key, values)

    def _of(self, state: ScenarioState) -> tuple[dict[str, Any], Path, dict[str, Any]]:
        base = self.starting_points[state.base]
        check_paths(state.table, base)
        return state.table, base.folder, base.table
