"""A sweep, from its axes to the table of results; points in the journal do not run again."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.keys import item_index, put
from kvsim.plumbing.toml import value_text
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.backends.backend import BackendOptions
from kvsim.whatif.sweep.axes import Axis, Settings, points
from kvsim.whatif.sweep.journal import SweepJournal
from kvsim.whatif.task import Task, TaskOutcome, make_task

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int], None]
STATUS, DONE, FAILED = "status", "done", "failed"


class SweepPoint(NamedTuple):
    """One setting at one seed. number: index of the setting. task: the simulation that runs it.
    allocators: indices, in the scenario, of the allocators that it runs.
    """

    number: int
    settings: Settings
    seed: int
    task: Task
    allocators: tuple[int, ...]


class Sweep:
    """The points of a scenario's sweep: every setting of the axes at every seed.

    Every setting has the same seeds. If the axes leave the workload unchanged, a seed gives the
    same requests at every setting. If they scale it, a seed gives the same random draws, scaled
    (common random numbers). A key of one allocator changes only that allocator, so the others run
    once for all of its values. Raises InputError for axes with keys that the tables do not have.
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
        self.base_labels = _labels(table, folder)
        self.owners = {key: self._owner(key) for key in self.keys}
        run = self._allocators_to_run()
        self.points = [
            SweepPoint(number, settings, seed, self._task(settings, seed, kept), kept)
            for number, (settings, kept) in enumerate(zip(self.settings, run, strict=True))
            for seed in self.seeds
        ]

    @property
    def keys(self) -> list[str]:
        """The varied keys, in order."""
        return [key for axis in self.axes for key in axis.keys]

    def _owner(self, key: str) -> int | None:
        """Index of the only allocator that this key changes; None if it may change all.

        If the pool's size is given in blocks, another block size changes its bytes for every
        allocator.
        """
        first, _, rest = key.partition(".")
        entries = self.table.get("allocator")
        memory = self.table.get("memory")
        if first != "allocator" or not rest or not isinstance(entries, list) or len(entries) < 2:
            return None
        if isinstance(memory, dict) and "num_gpu_blocks" in memory:
            return None
        return item_index(entries, rest.partition(".")[0], f"--vary {key}")

    def _allocators_to_run(self) -> list[tuple[int, ...]]:
        """For each setting, the indices of the allocators that no earlier setting has run with
        equal options.
        """
        entries = self.table.get("allocator")
        count = len(entries) if isinstance(entries, list) else 1
        seen: set[str] = set()
        found = []
        for settings in self.settings:
            kept = []
            for place in range(count):
                own = {key: value for key, value in settings.items() if self.applies(key, place)}
                alike = repr((place, own))
                if alike not in seen:
                    seen.add(alike)
                    kept.append(place)
            everyone = range(count)
            alone = len(kept) == count or self._pool(settings, kept) == self._pool(
                settings, everyone
            )
            found.append(tuple(kept if alone or not kept else everyone))
        return found

    def _pool(self, settings: Settings, kept: Sequence[int]) -> int | None:
        """The pool's bytes with only these allocators; None if the scenario is then invalid."""
        try:
            return self.simulation(settings, kept).pool.capacity_bytes
        except InputError:
            return None

    def simulation(self, settings: Settings, places: Sequence[int] | None = None) -> Simulation:
        """The simulation of a setting, without requests, with the allocators at these indices;
        None: all.
        """
        everyone = range(len(self.table.get("allocator") or ()))
        table = self._table(settings, everyone if places is None else places)
        return Simulation(Scenario.from_table(table, self.folder), [])

    def check(self) -> None:
        """Raise InputError unless at least one setting is a valid scenario."""
        first = None
        for settings in self.settings:
            try:
                self.simulation(settings)
            except InputError as error:
                first = first or error
            else:
                return
        if first is not None:
            raise first

    def applies(self, key: str, place: int) -> bool:
        """Whether this key changes anything for the allocator at index `place` of the scenario."""
        return self.owners[key] in (None, place)

    def _task(self, settings: Settings, seed: int, kept: Sequence[int]) -> Task:
        return make_task(self._table(settings, kept) | {"seed": seed}, self.folder)

    def _table(self, settings: Settings, kept: Sequence[int]) -> dict[str, Any]:
        """The scenario's tables at these settings, with the allocators at these indices."""
        table = copy.deepcopy(self.table)
        if isinstance(table.get("allocator"), dict):
            table["allocator"] = [table["allocator"]]
        for key, value in settings.items():
            put(table, key, value, "--vary")
        entries = table.get("allocator")
        if isinstance(entries, list) and len(kept) < len(entries):
            table["allocator"] = [entries[place] for place in kept]
        return table

    def run(
        self,
        journal: SweepJournal,
        backend: BackendOptions,
        *,
        retry_failed: bool = False,
        progress: Progress = lambda done, total: None,
    ) -> "pd.DataFrame":
        """Run the points that are not in the journal yet, and return the table of all points.

        retry_failed: run failed points again. progress: called with (points finished, points in
        all). Each finished point is in the journal even if this never returns.
        """
        known = journal.outcomes
        wanted = {point.task.key: point.task for point in self.points if point.allocators}
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
        """One row per setting, seed and allocator, in that order; a failed point has one row.

        Columns: point, the varied keys, seed, status, error, then the summary by dotted key. Values
        that are no scalars are written as JSON; a key of another allocator is empty.
        """
        import pandas as pd

        rows = []
        for point in self.points:
            if not point.allocators:
                continue
            outcome = outcomes[point.task.key]
            head = {
                "point": point.number,
                **{key: scalar(value) for key, value in point.settings.items()},
                "seed": point.seed,
                STATUS: FAILED if outcome.error else DONE,
                "error": outcome.error,
            }
            rows += [
                {**head, **self._foreign(place), **row, "label": self._label(place, row)}
                for place, row in zip(point.allocators, outcome.rows, strict=False)
            ] or [head]
        frame = pd.DataFrame(rows)
        for key in self.keys:  # Parquet knows one type a column
            values = [row[key] for row in rows]
            kinds = {type(value) for value in values if value is not None}
            if len(kinds) > 1 and not kinds <= {int, float}:
                frame[key] = [None if value is None else str(value) for value in values]
            elif kinds == {int} and None in values:
                frame[key] = pd.array(values, dtype="Int64")
        return frame

    def _foreign(self, place: int) -> dict[str, None]:
        """The varied keys of other allocators, which are empty in this allocator's rows."""
        return {key: None for key in self.keys if not self.applies(key, place)}

    def _label(self, index: int, row: dict[str, Any]) -> str:
        """The allocator's label at every point: its label in the unchanged scenario, if its kind is
        unchanged.

        So a varied key does not split one allocator into several labels.
        """
        if index < len(self.base_labels):
            kind, label = self.base_labels[index]
            if kind == row["allocator"]:
                return label
        return str(row["label"])


def scalar(value: Any) -> Any:
    """The value as a table's cell: scalars unchanged, anything else as one line of TOML."""
    return value if isinstance(value, str | int | float | bool) else value_text(value)


def _labels(table: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """(kind, label) of the unchanged scenario's allocators; empty if the scenario is invalid
    without the varied keys.
    """
    from kvsim.memory import ALLOCATORS

    try:
        scenario = Scenario.from_table(table, folder)
        kinds = [ALLOCATORS.name_of(each) for each in scenario.allocator]
        return list(zip(kinds, scenario.labels(), strict=True))
    except InputError:
        return []
