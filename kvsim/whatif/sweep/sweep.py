"""A sweep from its axes to its table: what is finished is kept, the rest is run."""

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.keys import put
from kvsim.scenario import Scenario
from kvsim.whatif.backends.backend import BackendOptions
from kvsim.whatif.sweep.axes import Axis, Settings, points
from kvsim.whatif.sweep.journal import SweepJournal
from kvsim.whatif.task import Task, TaskOutcome, make_task

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int], None]
STATUS, DONE, FAILED = "status", "done", "failed"


class SweepPoint(NamedTuple):
    """One setting at one seed. number: of the setting. task: the simulation that runs it."""

    number: int
    settings: Settings
    seed: int
    task: Task


class Sweep:
    """The points of a scenario's tables: every setting of the axes at every seed.

    The same seeds at every setting: a seed gives the same requests wherever the axes leave the
    workload alone, and the same draws, differently scaled, where they scale it (common random
    numbers). Raises InputError for axes that the tables have no place for.
    """

    def __init__(
        self, table: dict[str, Any], folder: Path, axes: Sequence[Axis], repeat: int = 1
    ) -> None:
        self.table, self.folder, self.axes = table, folder, tuple(axes)
        self.settings = list(points(axes))
        first = table.get("seed", 0)
        if not isinstance(first, int) or first < 0:
            raise InputError("not a whole number from 0 on", where="seed", value=first)
        self.seeds = range(first, first + repeat)
        self.points = [
            SweepPoint(number, settings, seed, self._task(settings, seed))
            for number, settings in enumerate(self.settings)
            for seed in self.seeds
        ]
        self.base_labels = _labels(table, folder)

    @property
    def keys(self) -> list[str]:
        """The keys that move, in order."""
        return [key for axis in self.axes for key in axis.keys]

    def _task(self, settings: Settings, seed: int) -> Task:
        table = copy.deepcopy(self.table)
        if isinstance(table.get("allocator"), dict):
            table["allocator"] = [table["allocator"]]
        for key, value in settings.items():
            put(table, key, value, "--vary")
        table["seed"] = seed
        return make_task(table, self.folder)

    def run(
        self,
        journal: SweepJournal,
        backend: BackendOptions,
        *,
        retry_failed: bool = False,
        progress: Progress = lambda done, total: None,
    ) -> "pd.DataFrame":
        """Run what the journal does not hold yet, and return the table of all points.

        retry_failed: run those again that failed. progress: called with (points finished, points
        in all). What is finished is in the journal even if this never returns.
        """
        known = journal.outcomes
        wanted = {point.task.key: point.task for point in self.points}
        left = [
            task
            for key, task in wanted.items()
            if key not in known or (retry_failed and known[key].error is not None)
        ]
        done = len(wanted) - len(left)
        progress(done, len(wanted))
        for outcome in backend.run(left):
            journal.add(outcome)
            done += 1
            progress(done, len(wanted))
        return self.frame(known)

    def frame(self, outcomes: dict[str, TaskOutcome]) -> "pd.DataFrame":
        """One row a setting, seed and allocator, in that order; a failed point has one row. The
        columns: point, the keys that move, seed, status, error, then the summary, keys dotted.
        Values that are no scalars are written as JSON.
        """
        import pandas as pd

        rows = []
        for point in self.points:
            outcome = outcomes[point.task.key]
            head = {
                "point": point.number,
                **{key: scalar(value) for key, value in point.settings.items()},
                "seed": point.seed,
                STATUS: FAILED if outcome.error else DONE,
                "error": outcome.error,
            }
            rows += [
                {**head, **row, "label": self._label(at, row)}
                for at, row in enumerate(outcome.rows)
            ] or [head]
        frame = pd.DataFrame(rows)
        for key in self.keys:  # Parquet knows one type a column
            if len({type(value) for value in frame[key]} - {int, float}) > 0:
                kinds = {type(value) for value in frame[key]}
                if len(kinds) > 1:
                    frame[key] = frame[key].map(str)
        return frame

    def _label(self, index: int, row: dict[str, Any]) -> str:
        """The allocator's name at every point: that of the scenario as it is, where it keeps its
        kind, so that a key that varies does not turn one allocator into many.
        """
        if index < len(self.base_labels):
            kind, label = self.base_labels[index]
            if kind == row["allocator"]:
                return label
        return str(row["label"])


def scalar(value: Any) -> Any:
    """The value as a table's cell: scalars as they are, anything else as JSON."""
    return value if isinstance(value, str | int | float | bool) else json.dumps(value, default=str)


def _labels(table: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """(kind, label) of the scenario's allocators as it stands; none if it does not stand without
    what is varied.
    """
    from kvsim.memory import ALLOCATORS

    try:
        scenario = Scenario.from_table(table, folder)
        kinds = [ALLOCATORS.name_of(each) for each in scenario.allocator]
        return list(zip(kinds, scenario.labels(), strict=True))
    except InputError:
        return []
