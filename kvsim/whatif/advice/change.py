"""What advice is made of: a goal, changes of one knob, and what was found of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvsim.whatif.advice.baseline import Baseline
from kvsim.whatif.advice.knobs import Knob
from kvsim.whatif.capacity.objectives import RATES, check_number
from kvsim.whatif.intervals import Ratio
from kvsim.whatif.replicates import Replicates
from kvsim.whatif.scenario_tables import Table


class Goal(NamedTuple):
    """A number of the summary, its keys dotted, and whether more of it is better."""

    name: str
    higher: bool

    def gain(self, of: Ratio) -> float:
        """How much better, as a share of what it was; below zero it is worse."""
        return of.mean if self.higher else -of.mean


@dataclass(frozen=True)
class Change:
    """One knob at another value, in the search: ratio of the goal (None: it has none), also: of the
    other numbers, refused: requests it refuses more. tested: the ratio in the test, None where it
    was not promising enough for one.
    """

    knob: Knob
    value: Any
    before: Any
    ratio: Ratio | None
    also: Mapping[str, Ratio]
    refused: int
    gain: float
    tested: Ratio | None = None
    helps: bool = False

    @property
    def verdict(self) -> str:
        """In words."""
        if self.refused > 0:
            return f"refuses {self.refused:,} requests"
        ratio = self.tested or self.ratio
        if ratio is None:
            return "cannot be compared"
        if ratio == (0, 0, 0):
            return "the same"
        if self.helps:
            return "better"
        if self.tested is not None or not ratio.seen:
            return "no difference seen"
        return "worse" if self.gain < 0 else "not tested"


@dataclass(frozen=True)
class Advice:
    """changes: every single one, best first. taken: those of the best setting found, in the order
    they were added. base: the goal's mean in the search, as the scenario is; saturated: in how many
    of those runs. reported: the best setting against today's on replicates that the search has not
    seen, None where nothing helped. also: of the other numbers, likewise. baseline: how it stands
    as it is. notes: on its runs in the search.
    """

    goal: Goal
    label: str
    today: Table
    best: Table
    changes: tuple[Change, ...]
    not_tried: tuple[tuple[str, str], ...]
    taken: tuple[Change, ...]
    replicates: Replicates
    base: float | None
    saturated: int
    reported: Ratio | None
    reported_also: Mapping[str, Ratio]
    baseline: Baseline
    notes: tuple[str, ...]


def goal_named(name: str) -> Goal:
    """The goal of this name; InputError lists them."""
    check_number(name, "--goal")
    return Goal(name, name in RATES)


def value_text(value: Any) -> str:
    """A value as people read it."""
    if isinstance(value, Mapping):
        return str(value.get("kind"))
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
