"""The runner of simulations that every what-if tool shares: each task is run once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.whatif.backends import BackendOptions
from kvsim.whatif.task import Task, TaskOutcome

Row = Mapping[str, Any]
Progress = Callable[[int], None]


class TaskRunner:
    """A runner of tasks in a backend, each task once. num_runs: simulations so far; `progress` is
    called with it.
    """

    def __init__(self, backend: BackendOptions, progress: Progress = lambda runs: None) -> None:
        self._backend = backend
        self._progress = progress
        self._known: dict[str, TaskOutcome] = {}

    @property
    def num_runs(self) -> int:
        """Simulations run so far."""
        return len(self._known)

    def run(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        """The outcomes in order; InputError for one that failed by no fault of its scenario."""
        new = {task.key: task for task in tasks if task.key not in self._known}
        for outcome in self._backend.run(list(new.values())):
            if outcome.error is not None and not outcome.wrong_input:
                raise InputError(f"a run failed: {outcome.error}")
            self._known[outcome.key] = outcome
            self._progress(self.num_runs)
        return [self._known[task.key] for task in tasks]
