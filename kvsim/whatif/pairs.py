"""Two settings on the same replicates, number by number."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from kvsim.plumbing.errors import InputError
from kvsim.report.intervals import CONFIDENCE
from kvsim.whatif.intervals import Ratio, ratio
from kvsim.whatif.replicates import Replicate
from kvsim.whatif.runner import Row, TaskRunner
from kvsim.whatif.scenario_tables import Table
from kvsim.whatif.task import Task, make_task

REFUSED = "requests.rejected"


class Trials:
    """Runs of tables on replicates; each is run once, however often it is asked for."""

    def __init__(self, runner: TaskRunner, folder: Path) -> None:
        self._runner, self._folder = runner, folder

    def run_all(self, tables: Iterable[Table], on: Sequence[Replicate]) -> None:
        """All of them side by side, so that `rows` has them at hand."""
        self._runner.run([self._task(table, each) for table in tables for each in on])

    def rows(self, table: Table, on: Sequence[Replicate], *, waits: bool = False) -> list[Row]:
        """One row a replicate, with why its queue waited if asked for; InputError where it cannot
        be run.
        """
        rows: list[Row] = []
        for outcome in self._runner.run([self._task(table, each, waits) for each in on]):
            if outcome.error is not None:
                raise InputError(outcome.error)
            rows.append(outcome.rows[0])
        return rows

    def _task(self, table: Table, replicate: Replicate, waits: bool = False) -> Task:
        return make_task(replicate.put(table), self._folder, waits=waits)


def ratios(
    first: Sequence[Row], second: Sequence[Row], names: Iterable[str], level: float = CONFIDENCE
) -> dict[str, Ratio]:
    """Second / first - 1 of the numbers that are above 0 in all rows, pair by pair."""
    found = {}
    for name in names:
        pairs = [(a[name], b[name]) for a, b in zip(first, second, strict=True)]
        if all(a and b for a, b in pairs):
            found[name] = ratio([a for a, _ in pairs], [b for _, b in pairs], level)
    return found


def more_refused(first: Sequence[Row], second: Sequence[Row]) -> int:
    """How many requests more the second refuses."""
    return sum(int(row[REFUSED]) for row in second) - sum(int(row[REFUSED]) for row in first)
