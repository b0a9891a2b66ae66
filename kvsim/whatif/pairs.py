"""Two settings compared on the same replicates, number by number."""

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
    """Runs of tables on replicates; the runner runs each only once."""

    def __init__(self, runner: TaskRunner, folder: Path) -> None:
        self._runner, self._folder = runner, folder

    def run_all(
        self, tables: Iterable[Table], on: Sequence[Replicate], *, waits: bool = False
    ) -> None:
        """Run every scenario table on every replicate in parallel; `rows` then has them ready."""
        self._runner.run([self._task(table, each, waits) for table in tables for each in on])

    def rows(self, table: Table, on: Sequence[Replicate], *, waits: bool = False) -> list[Row]:
        """One row a replicate; InputError where the table cannot be run. waits: whether rows also
        hold the causes for which the queue waited.
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
    """The ratios second / first - 1, pair by pair, of the named numbers that are above 0 in all
    rows.
    """
    found = {}
    for name in names:
        pairs = [(a[name], b[name]) for a, b in zip(first, second, strict=True)]
        if all(a and b for a, b in pairs):
            found[name] = ratio([a for a, _ in pairs], [b for _, b in pairs], level)
    return found


def more_refused(first: Sequence[Row], second: Sequence[Row]) -> int:
    """The number of requests that the second rows refuse beyond those of the first."""
    return sum(int(row[REFUSED]) for row in second) - sum(int(row[REFUSED]) for row in first)
