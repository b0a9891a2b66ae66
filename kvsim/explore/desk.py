"""What all callbacks of the page work with: the bases it can start from and the crew."""

from typing import NamedTuple

from kvsim.explore.bases import Base
from kvsim.explore.crew import Crew
from kvsim.explore.state import State
from kvsim.explore.task import RunTask, SweepTask
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.keys import assignment
from kvsim.whatif.sweep.axes import parse_axis


class Desk(NamedTuple):
    """bases: by name. default: the one an empty address starts from."""

    bases: dict[str, Base]
    crew: Crew
    default: str

    def run_task(self, state: State) -> RunTask:
        """Simulate the state."""
        return RunTask(state.table, self.bases[state.base].folder)

    def sweep_task(self, state: State, sweep: str) -> SweepTask:
        """Simulate the state along a sweep such as `a.b=1:8:4`; InputError where that is none."""
        key, _ = assignment(sweep, "sweep")
        values = tuple(value for (value,) in parse_axis(sweep, "sweep").rows)
        if len(values) < 2 or not all(type(value) in (int, float) for value in values):
            raise InputError(
                "a sweep goes from one number to another",
                where=f"sweep {key}",
                value=sweep.partition("=")[2],
                limit="2 values or more",
            )
        return SweepTask(state.table, self.bases[state.base].folder, key, values)
