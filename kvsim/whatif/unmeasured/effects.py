"""Simulate half and double of each assumed number, and compare the answers."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.keys import put
from kvsim.plumbing.toml import value_text
from kvsim.report.measures import Measure
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.runner import TaskRunner
from kvsim.whatif.scenario_tables import Table
from kvsim.whatif.sweep.axes import Axis
from kvsim.whatif.sweep.ranking import nested
from kvsim.whatif.task import make_task
from kvsim.whatif.unmeasured.assumption import Assumption, assumptions


class LoadAnswer(NamedTuple):
    """The answer at one load. values: the measure of the run, or of each of two compared settings;
    None for a run without this measure. refused: the error that refuses the scenario; None: it
    runs.
    """

    values: tuple[float | None, ...]
    refused: str | None = None

    @property
    def answer(self) -> float | None:
        """The measure of a single run; with two settings, the second's relative to the first's,
        minus 1.
        """
        if self.refused is not None or None in self.values:
            return None
        first, last = self.values[0], self.values[-1]
        if len(self.values) == 1:
            return first
        return last / first - 1 if first and last is not None else None


class LoadEffect(NamedTuple):
    """The answers at half and double of one assumption. moved: the largest change of the answer,
    relative to the answer; with two settings, the change of their relative difference. None: no
    answer at either.
    """

    assumption: Assumption
    half: LoadAnswer
    double: LoadAnswer
    moved: float | None


class Unmeasured(NamedTuple):
    """The answer for the scenario as described, and the effects, the largest first. settings: the
    two compared settings as text; empty if the answer is one number.
    """

    measure: Measure
    settings: tuple[str, ...]
    described: LoadAnswer
    effects: tuple[LoadEffect, ...]
    table: Table

    def turns(self, effect: LoadEffect) -> bool:
        """Whether the other setting becomes the better one at half or double of the assumption."""
        here = self.described.answer
        found = [each.answer for each in (effect.half, effect.double)]
        return bool(self.settings) and any(
            here is not None and other is not None and here * other < 0 for other in found
        )


def unmeasured(
    table: Table, folder: Path, measure: Measure, axis: Axis | None, runner: TaskRunner
) -> Unmeasured:
    """Run the scenario as it is, and with half and double of each assumption. axis: key with two
    values to compare; None: none. InputError if the scenario has no assumptions, or does not run as
    it is.
    """
    settings = _settings(axis)
    scenarios = [Scenario.from_table(_put(table, each), folder) for each in settings]
    for each in scenarios:
        Simulation(each)  # refuses an invalid scenario, with its key
    known = {each.key: each for one in scenarios for each in assumptions(one, table)}
    found = list(known.values())  # a link is included if either setting uses it
    if not found:
        raise InputError(
            "only loads of kind synthetic and sessions have assumed numbers",
            where="workload.kind",
            value=(table.get("workload") or {}).get("kind"),
            remedy="kvsim sweep varies a key of your choice",
        )
    tables = [table, *(changed for each in found for changed in each.changed)]
    tasks = [make_task(_put(each, setting), folder) for each in tables for setting in settings]
    outcomes = runner.run(tasks)
    answers = []
    for at in range(0, len(outcomes), len(settings)):
        some = outcomes[at : at + len(settings)]
        error = next((each.error for each in some if each.error is not None), None)
        rows = [each.rows[0] if each.rows else None for each in some]
        answers.append(LoadAnswer(tuple(_value(measure, row) for row in rows), error))
    described, others = answers[0], answers[1:]
    if described.refused is not None:
        raise InputError(described.refused)
    if described.answer is None:
        raise InputError("no run has this number", where="--by", value=measure.title)
    effects = [
        LoadEffect(each, half, double, _moved(described, half, double, compared=len(settings) > 1))
        for each, half, double in zip(found, others[::2], others[1::2], strict=True)
    ]
    effects.sort(key=lambda each: -1 if each.moved is None else each.moved, reverse=True)
    names = tuple(_text(setting) for setting in settings) if axis is not None else ()
    return Unmeasured(measure, names, described, tuple(effects), table)


def _settings(axis: Axis | None) -> list[dict[str, Any]]:
    if axis is None:
        return [{}]
    if len(axis.rows) != 2:
        raise InputError(
            "needs two values, which are compared", where="--vary", value=len(axis.rows)
        )
    return [dict(zip(axis.keys, row, strict=True)) for row in axis.rows]


def _put(table: Table, setting: Mapping[str, Any]) -> Table:
    changed: Table = {key: value for key, value in table.items() if key != "provenance"}
    changed = copy.deepcopy(changed)
    for key, value in setting.items():
        put(changed, key, value, f"--vary {key}")
    return changed


def _value(measure: Measure, row: Mapping[str, Any] | None) -> float | None:
    return None if row is None else measure.value(nested(row))


def _moved(
    described: LoadAnswer, half: LoadAnswer, double: LoadAnswer, *, compared: bool
) -> float | None:
    here = described.answer
    known = [each.answer for each in (half, double) if each.answer is not None]
    if here is None or not known:
        return None
    far = max(abs(other - here) for other in known)
    if compared:
        return far
    return far / abs(here) if here else float(far > 0)


def _text(setting: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value_text(value)}" for key, value in setting.items())
