"""Runs simulations for all what-if commands, each distinct task once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.whatif.backends import BackendOptions
from kvsim.whatif.task import Task, TaskOutcome

Row = Mapping[str, Any]


class TurnOfRuns(NamedTuple):
    """Progress of a batch of simulations that run together.

    number: number of the batch, from 1; the results of a batch decide what the next one contains.
    done, total: simulations of this batch. before: simulations of all earlier batches.
    """

    number: int
    done: int
    total: int
    before: int


Progress = Callable[[TurnOfRuns], None]


class TaskRunner:
    """Runs tasks on a backend, and each task only once. progress: called when a batch begins, and
    after each simulation.
    """

    def __init__(self, backend: BackendOptions, progress: Progress = lambda turn: None) -> None:
        self._backend = backend
        self._progress = progress
        self._num_turns = 0
        self._known: dict[str, TaskOutcome] = {}

    @property
    def num_runs(self) -> int:
        """Number of simulations run so far."""
        return len(self._known)

    def run(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        """Outcomes of the tasks in order; InputError if a run failed for another reason than
        invalid input.
        """
        new = {task.key: task for task in tasks if task.key not in self._known}
        before = self.num_runs
        if new:
            self._num_turns += 1
            self._progress(TurnOfRuns(self._num_turns, 0, len(new), before))
        for outcome in self._backend.run(list(new.values())):
            if outcome.error is not None and not outcome.wrong_input:
                raise InputError(f"a run failed: {outcome.error}")
            self._known[outcome.key] = outcome
            done = self.num_runs - before
            self._progress(TurnOfRuns(self._num_turns, done, len(new), before))
        return [self._known[task.key] for task in tasks]
