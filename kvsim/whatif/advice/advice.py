"""Advice: run every single change, combine the helpful ones, and test the combination.

1. Search: each value of each knob alone, on the same seeds as the unchanged scenario. Ratios are
   taken pair by pair and rank the changes.
2. Test: the most promising ones on seeds of their own. Among many changes some look good by
   chance; these fail here. The intervals are widened for how many are tested
   (Bonferroni), and those that hold zero are no difference. A gain below the model's own error
   (`Goal.own_error`) is none to act on.
3. The changes that passed, best first, are added one after the other; each stays if it still
   helps as much together with the earlier ones.
4. Report: both settings on seeds that neither search nor test has seen. Changes without a
   gain there as well, beyond chance and the model's own error, are not advised. The last change is
   dropped then, and the rest is tried in the same way.
5. Survey: the bottleneck of the unchanged scenario, in the search and on those same unseen seeds,
   and how much less of the pool would do.

A change that refuses a request which is served today is never advised.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.report.intervals import CONFIDENCE
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.advice.change import Advice, Change, Goal, value_text
from kvsim.whatif.advice.knobs import KNOBS, Knob
from kvsim.whatif.advice.survey import Survey
from kvsim.whatif.deployments import check_alike, num_replicas
from kvsim.whatif.intervals import Ratio
from kvsim.whatif.notes import noted
from kvsim.whatif.pairs import Trials, more_refused, ratios
from kvsim.whatif.replicates import Replicate, replicates
from kvsim.whatif.runner import TaskRunner
from kvsim.whatif.scenario_tables import Table, paged_alone, pinned, sized_in_bytes, with_value

MOST_TESTED = 6
LEAST_GAIN = 0.001  # a thousandth better is not worth a test
ALSO = ("ttft_s.p99", "tpot_s.p50", "output_tokens_per_s")  # shown beside the goal


class Advisor:
    """Searches better settings for one allocator of a scenario."""

    def __init__(
        self, table: Table, folder: Path, goal: Goal, runner: TaskRunner, *, repeat: int = 5
    ) -> None:
        scenario = Scenario.from_table(table, folder)
        check_alike(scenario, "advise")
        self.num_replicas = num_replicas(scenario)
        self.folder, self.goal, self.trials = folder, goal, Trials(runner, folder)
        self.label, alone = paged_alone(table, folder)
        longest = Simulation(Scenario.from_table(alone, folder), []).max_model_len
        self.own = alone
        self.table = sized_in_bytes(pinned(alone, longest), folder)
        self.replicates = replicates(self.table, folder, repeat)

    def advise(self) -> Advice:
        """Run all five steps."""
        scenario = Scenario.from_table(self.table, self.folder)
        simulation = Simulation(scenario)
        self._check_today()
        tried, not_tried = self._candidates(simulation)
        searched, failed = self._searched(tried)
        changes = self._tested(searched)
        found = self._together([change for change in changes if change.helps])
        taken, best, reported, also = self._confirmed(found)
        rows = self.trials.rows(self.table, self.replicates.search)
        values = [row[self.goal.name] for row in rows if row[self.goal.name] is not None]
        return Advice(
            self.goal,
            self.label,
            self.own,
            self.table,
            best,
            tuple(changes),
            (*not_tried, *failed),
            tuple(taken),
            tuple(found[len(taken) :]),
            self.replicates,
            sum(values) / len(values) if values else None,
            sum(bool(row["saturated"]) for row in rows),
            reported,
            also,
            Survey(self.trials, self.replicates, self.folder, self.goal).of(self.table, best),
            (*self._fleet_note(), *noted(rows)),
        )

    def _fleet_note(self) -> list[str]:
        if self.num_replicas == 1:
            return []
        return [
            f"All numbers are of the {self.num_replicas:,} replicas together. Each replica starts "
            "with these flags."
        ]

    def _check_today(self) -> None:
        """Raise InputError unless the goal has a value with the unchanged settings, with which all
        others are compared.
        """
        rows = self.trials.rows(self.table, self.replicates.search)
        if all(row[self.goal.name] is None for row in rows):
            raise InputError(
                "has no value at today's settings, so no change can be compared",
                where=self.goal.name,
                remedy=next(iter(noted(rows)), "`kvsim run` says which requests were served"),
            )

    def _candidates(
        self, simulation: Simulation
    ) -> tuple[list[tuple[Knob, Any, Any]], list[tuple[str, str]]]:
        """(knob, value, current value) of every change to try, and of changes that cannot be tried,
        each with the reason.
        """
        tables = simulation.resolved()
        tried, refused = [], []
        for knob in KNOBS:
            if not _known(simulation.scenario, knob.key):
                continue
            now = knob.now(tables)
            for value in knob.values(simulation):
                if value == now:
                    continue
                try:
                    there = with_value(self.table, knob.key, value)
                    Simulation(Scenario.from_table(there, self.folder), [])
                except InputError as error:
                    refused.append((f"{knob.key} = {value_text(value)}", str(error)))
                    continue
                tried.append((knob, value, now))
        return tried, refused

    def _searched(
        self, tried: Sequence[tuple[Knob, Any, Any]]
    ) -> tuple[list[Change], list[tuple[str, str]]]:
        """Compare every candidate with the unchanged scenario, best first; all run in parallel."""
        on = self.replicates.search
        tables = [
            self.table,
            *(with_value(self.table, knob.key, value) for knob, value, _ in tried),
        ]
        self.trials.run_all(tables, on)
        changes, failed = [], []
        for (knob, value, now), table in zip(tried, tables[1:], strict=True):
            try:
                ratio_of, also, refused = self._ratios(self.table, table, on)
            except InputError as error:
                failed.append((f"{knob.key} = {value_text(value)}", str(error)))
                continue
            gain = 0.0 if ratio_of is None else self.goal.gain(ratio_of)
            changes.append(Change(knob, value, now, ratio_of, also, refused, gain))
        changes.sort(key=lambda change: change.gain, reverse=True)
        return changes, failed

    def _tested(self, changes: Sequence[Change]) -> list[Change]:
        """Test the most promising changes, one for each knob; changes that pass come first."""
        promising: dict[str, Change] = {}
        for change in changes:
            if change.gain > LEAST_GAIN and change.refused <= 0:
                promising.setdefault(change.knob.key, change)
        chosen = list(promising.values())[:MOST_TESTED]
        level = 1 - (1 - CONFIDENCE) / max(1, len(chosen))
        on = self.replicates.test
        tables = [with_value(self.table, each.knob.key, each.value) for each in chosen]
        self.trials.run_all([self.table, *tables], on)
        found = []
        for change in changes:
            if change in chosen:
                table = tables[chosen.index(change)]
                ratio_of, _, refused = self._ratios(self.table, table, on, level)
                gained = ratio_of is not None and self._gains(ratio_of, 0.0)
                helps = ratio_of is not None and self._gains(ratio_of, self.goal.own_error)
                refused += change.refused
                found.append(
                    replace(
                        change,
                        tested=ratio_of,
                        refused=refused,
                        helps=helps and refused <= 0,
                        small=gained and not helps,
                    )
                )
            else:
                found.append(change)
        return sorted(found, key=lambda change: not change.helps)

    def _together(self, helpful: Sequence[Change]) -> list[Change]:
        """Add the helpful changes, best first, as long as each still helps together with the
        earlier ones, on all replicates used so far.
        """
        taken: list[Change] = []
        table = self.table
        on = (
            self.replicates.search
            if self.replicates.exact
            else (*self.replicates.search, *self.replicates.test)
        )
        for change in helpful:
            there = with_value(table, change.knob.key, change.value)
            try:
                ratio_of, _, refused = self._ratios(table, there, on)
            except InputError:
                continue  # two changes that cannot stand together
            if ratio_of is None or refused > 0:
                continue
            if self._gains(ratio_of, self.goal.own_error):
                taken.append(change)
                table = there
        return taken

    def _gains(self, of: Ratio, least: float) -> bool:
        """Whether the goal improves by more than `least`, beyond chance."""
        return of.seen and self.goal.gain(of) > least

    def _confirmed(
        self, found: Sequence[Change]
    ) -> tuple[list[Change], Table, Ratio | None, dict[str, Ratio]]:
        """Confirm on unused replicates the longest leading part of `found` that still gains.
        Returns these changes, the tables with them, and the gain.
        """
        taken = list(found)
        while taken:
            best = self.table
            for change in taken:
                best = with_value(best, change.knob.key, change.value)
            reported, also, refused = self._ratios(self.table, best, self.replicates.report)
            gains = reported is not None and self._gains(reported, self.goal.own_error)
            if gains and refused <= 0:
                return taken, best, reported, also
            taken.pop()
        return [], self.table, None, {}

    def _ratios(
        self, base: Table, other: Table, on: Sequence[Replicate], level: float = CONFIDENCE
    ) -> tuple[Ratio | None, dict[str, Ratio], int]:
        """(ratios of the goal, ratios of other numbers, number of additional refused requests) of
        two settings.
        """
        first, second = self.trials.rows(base, on), self.trials.rows(other, on)
        found = ratios(first, second, (self.goal.name, *ALSO), level)
        goal = found.pop(self.goal.name, None)
        return goal, found, more_refused(first, second)


def _known(scenario: Scenario, key: str) -> bool:
    """Whether the scenario has this key."""
    part, *rest = key.split(".")
    options = scenario.allocator[0] if part == "allocator" else getattr(scenario, part)
    return not rest or rest[-1] in type(options).model_fields
