"""Survey of a baseline: run the unchanged scenario, with twice the pool, at higher rates, and with
smaller pools.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from kvsim.plumbing.errors import InputError
from kvsim.whatif.advice.baseline import Baseline, Headroom, LeastPool, LoadReading, load_of
from kvsim.whatif.advice.change import Goal
from kvsim.whatif.capacity.bisection import Bounds, answered, bisect
from kvsim.whatif.capacity.load import faster
from kvsim.whatif.capacity.questions import (
    QUESTIONS,
    longest_fits,
    own_rate,
    prepared,
    utilization_of,
)
from kvsim.whatif.intervals import Ratio
from kvsim.whatif.pairs import Trials, more_refused, ratios
from kvsim.whatif.replicates import Replicate, Replicates
from kvsim.whatif.scenario_tables import Table

NO_WORSE = 0.01  # by so much a smaller pool may serve worse and still do
FASTEST = 64.0  # times today's rate is far enough to look
TOLERANCE = 0.05  # of a rate or a pool that is looked for: a hint, not a capacity


class Survey:
    """A survey on one set of replicates."""

    def __init__(self, trials: Trials, on: Replicates, folder: Path, goal: Goal) -> None:
        self.trials, self.on, self.folder, self.goal = trials, on, folder, goal

    def of(self, today: Table, best: Table) -> Baseline:
        """The baseline of the unchanged scenario; the smallest pool is searched with the best
        setting.
        """
        load = self.load(today, self.on.search)
        return Baseline(
            load,
            self.load(today, self.on.report),
            self._twice(today),
            self._headroom(today) if load.binds is None and load.keeps_up else None,
            self._least_pool(best),
        )

    def load(self, table: Table, on: Sequence[Replicate]) -> LoadReading:
        """Run the scenario of these TOML tables on the replicates (seeds) `on`. Returns what limits
        the server, and whether it keeps up. InputError if it cannot be run.
        """
        return load_of(self.trials.rows(table, on, waits=True))

    def _twice(self, table: Table) -> Ratio | None:
        there = QUESTIONS["pool"].put(table, 2 * self._pool_tokens(table))
        try:
            return self._unseen(table, there)
        except InputError:
            return None  # such a server cannot be

    def _headroom(self, table: Table) -> Headroom | None:
        """The load headroom, by bisection over rates, with all replicates of the search in
        parallel.
        """
        seen: dict[float, LoadReading] = {}

        def free(factor: float) -> bool:
            seen[factor] = self.load(faster(table, factor), self.on.search)
            return seen[factor].binds is None and seen[factor].keeps_up

        try:
            bounds = Bounds(2.0, 1.0, FASTEST, True, False, TOLERANCE)
            bracket = answered(bisect(bounds), free)
        except InputError:
            return None  # these arrivals have no rate
        rates = [own_rate(each.put(table), self.folder) for each in self.on.search]
        edge = bracket.lost or FASTEST
        return Headroom(bracket.kept or 1.0, edge, fmean(rates) * edge, seen.get(bracket.lost or 0))

    def _least_pool(self, table: Table) -> LeastPool | None:
        """The smallest sufficient pool, by bisection over sizes below the current one; None if the
        first size tried does worse.
        """
        pool = QUESTIONS["pool"]
        today = self._pool_tokens(table)

        def does(tokens: float) -> bool:
            return int(tokens) == today or self._no_worse(table, pool.put(table, tokens))

        bounds = Bounds(today / 2, 1.0, today, False, True, TOLERANCE)
        found = answered(bisect(bounds), does)
        if found.kept is None or found.kept >= today:
            return None
        unseen = None if self.on.exact else self._unseen(table, pool.put(table, found.kept))
        lost = None if found.lost is None else int(found.lost)
        share = None
        if prepared(table, self.folder).pool.sized_by == "gpu_memory_utilization":
            share = utilization_of(table, self.folder, found.kept)
        return LeastPool(int(found.kept), lost, today, share, unseen)

    def _no_worse(self, table: Table, there: Table) -> bool:
        """Whether a changed scenario still starts, worsens the goal by at most a hundredth, and
        refuses no more requests.

        To start, a pool must hold one sequence of max_model_len.
        """
        if not longest_fits(there, self.folder):
            return False
        try:
            first, second = (self.trials.rows(each, self.on.search) for each in (table, there))
        except InputError:
            return False
        if more_refused(first, second) > 0:
            return False
        name = self.goal.name
        of = ratios(first, second, [name]).get(name)
        if of is None:  # it is 0 somewhere: a count
            return [row[name] for row in first] == [row[name] for row in second]
        return self.goal.gain(of) >= -NO_WORSE

    def _unseen(self, table: Table, there: Table) -> Ratio | None:
        """The ratio of the goal with tables `there` to the goal with `table`, on replicates that no
        search has seen.
        """
        first, second = (self.trials.rows(each, self.on.report) for each in (table, there))
        return ratios(first, second, [self.goal.name]).get(self.goal.name)

    def _pool_tokens(self, table: Table) -> int:
        simulation = prepared(table, self.folder)
        return simulation.layout.tokens_in(simulation.pool.capacity_bytes)
