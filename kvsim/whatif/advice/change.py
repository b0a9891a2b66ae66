"""The nouns of an advice: a goal, changes of one knob, and what was found of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvsim.report.numbers import plural
from kvsim.whatif.advice.baseline import Baseline
from kvsim.whatif.advice.knobs import Knob
from kvsim.whatif.capacity.objectives import RATES, check_number
from kvsim.whatif.intervals import Ratio
from kvsim.whatif.replicates import Replicates
from kvsim.whatif.scenario_tables import Table
from kvsim.whatif.watch import SUBSTANTIAL

# Half of the first tokens' mean times on measured points that no constant was fitted on are off by
# less (docs/accuracy.md); times between tokens by less than SUBSTANTIAL.
FIRST_TOKEN_ERROR = 0.14


class Goal(NamedTuple):
    """The number to improve. name: of the summary, keys dotted. higher: whether more of it is
    better.
    """

    name: str
    higher: bool

    def gain(self, of: Ratio) -> float:
        """The improvement as a share of the old value; below zero the change is worse."""
        return of.mean if self.higher else -of.mean

    @property
    def own_error(self) -> float:
        """The share of a gain by which the simulation itself may be off: a first token's time is
        known less well than a step's.
        """
        early = self.name.startswith(("ttft_s", "queue_s"))
        return FIRST_TOKEN_ERROR if early else SUBSTANTIAL


@dataclass(frozen=True)
class Change:
    """One knob at another value. before: its value today. ratio: of the goal in the search; None
    where it has none. also: ratios of the other numbers. refused: requests that it refuses beyond
    today's. gain: the improvement of the goal as a share. tested: the ratio in the test; None where
    the search did not promise enough. small: it passed the test with less than the model's own
    error.
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
    small: bool = False

    @property
    def verdict(self) -> str:
        """The outcome in words: `better`, `no difference seen`, `refuses 3 requests`."""
        if self.refused > 0:
            return f"refuses {plural(self.refused, 'request')}"
        ratio = self.tested or self.ratio
        if ratio is None:
            return "cannot be compared"
        if ratio.same:
            return "the same"
        if self.helps:
            return "better"
        if self.small:
            return "less than the model's error"
        if self.tested is not None or not ratio.seen:
            return "no difference seen"
        return "worse" if self.gain < 0 else "not tested"


@dataclass(frozen=True)
class Advice:
    """The result of an advice. own: the user's tables with this allocator alone; `today` has the
    pool in bytes. changes: every single one, best first. not_tried: settings that are no scenario,
    each with its error. taken: changes of the best setting found, in the order of adding. lost:
    changes of a setting that fresh replicates did not confirm. base: the mean of the goal in the
    search, as the scenario is. saturated: the number of those runs that are saturated. reported:
    the best setting against today's on replicates that the search has not seen; None where nothing
    helped. reported_also: likewise of the other numbers. baseline: of the scenario as it is. notes:
    on its runs in the search.
    """

    goal: Goal
    label: str
    own: Table
    today: Table
    best: Table
    changes: tuple[Change, ...]
    not_tried: tuple[tuple[str, str], ...]
    taken: tuple[Change, ...]
    lost: tuple[Change, ...]
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
    """A value as the tables write it, a table by its kind and size."""
    if isinstance(value, Mapping):
        size = value.get("kv_offloading_size", value.get("max_local_cpu_size"))
        return str(value.get("kind")) + ("" if size is None else f" {size:g} GiB")
    if isinstance(value, list):
        return ", ".join(map(value_text, value))
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
