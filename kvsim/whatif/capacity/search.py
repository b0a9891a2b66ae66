"""Many bisections at once: each round runs what all of them ask next, side by side."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.whatif.capacity.bisection import Asking, Bracket
from kvsim.whatif.sweep.backends import BackendOptions
from kvsim.whatif.sweep.point import Outcome, Task

Row = Mapping[str, Any]
Progress = Callable[[int], None]


class Search(NamedTuple):
    """One bisection: what it asks, the run that answers for a value, and whether a run's row is
    good enough. task: None for a value that is lost without a run.
    """

    asking: Asking
    task: Callable[[float], Task | None]
    kept: Callable[[Row], bool]


class Found(NamedTuple):
    """The bracket, and the row of every value that was run; None: it could not be run."""

    bracket: Bracket
    rows: dict[float, Row | None]


class Runner:
    """Runs tasks, each once. num_runs: so far. progress: called with it."""

    def __init__(self, backend: BackendOptions, progress: Progress = lambda runs: None) -> None:
        self._backend = backend
        self._progress = progress
        self._known: dict[str, Outcome] = {}

    @property
    def num_runs(self) -> int:
        """Simulations run so far."""
        return len(self._known)

    def run(self, tasks: Sequence[Task]) -> list[Outcome]:
        """The outcomes in order; InputError for one that failed by no fault of its scenario."""
        new = {task.key: task for task in tasks if task.key not in self._known}
        for outcome in self._backend.run(list(new.values())):
            if outcome.error is not None and not outcome.wrong_input:
                raise InputError(f"a run failed: {outcome.error}")
            self._known[outcome.key] = outcome
            self._progress(self.num_runs)
        return [self._known[task.key] for task in tasks]

    def row(self, task: Task) -> Row:
        """The row of one task with one allocator; InputError if it cannot be run."""
        (outcome,) = self.run([task])
        if outcome.error is not None:
            raise InputError(outcome.error)
        return outcome.rows[0]

    def search(self, searches: Sequence[Search]) -> list[Found]:
        """Carry all searches to their end; InputError where no value of one could be run at all."""
        found: list[Bracket | None] = [None] * len(searches)
        rows: list[dict[float, Row | None]] = [{} for _ in searches]
        errors: list[str | None] = [None] * len(searches)
        asked = {at: next(search.asking) for at, search in enumerate(searches)}
        while asked:
            tasks = {at: searches[at].task(value) for at, value in asked.items()}
            runs = [(at, task) for at, task in tasks.items() if task is not None]
            outcomes = dict(
                zip((at for at, _ in runs), self.run([task for _, task in runs]), strict=True)
            )
            still: dict[int, float] = {}
            for at, value in asked.items():
                outcome = outcomes.get(at)
                row = outcome.rows[0] if outcome is not None and outcome.rows else None
                rows[at][value] = row
                if outcome is not None and outcome.error is not None:
                    errors[at] = outcome.error
                try:
                    still[at] = searches[at].asking.send(row is not None and searches[at].kept(row))
                except StopIteration as end:
                    found[at] = end.value
            asked = still
        done = []
        for bracket, seen, error in zip(found, rows, errors, strict=True):
            assert bracket is not None
            if error is not None and not any(seen.values()):
                raise InputError(error)
            done.append(Found(bracket, seen))
        return done
