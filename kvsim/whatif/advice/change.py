"""Data classes of an advice: a goal, changes of one knob, and their results."""

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
    """The number to improve. name: dotted name in the summary. higher: whether more is better."""

    name: str
    higher: bool

    def gain(self, of: Ratio) -> float:
        """The improvement as a share of the old value; negative if the change makes it worse."""
        return of.mean if self.higher else -of.mean

    @property
    def own_error(self) -> float:
        """The gain below which the simulation's own error could explain it, as a share: larger for
        first tokens than for step times.
        """
        early = self.name.startswith(("ttft_s", "queue_s"))
        return FIRST_TOKEN_ERROR if early else SUBSTANTIAL


@dataclass(frozen=True)
class Change:
    """One knob set to another value. before: the current value. ratio: of the goal in the search;
    None without a value. also: ratios of other numbers. refused: number of additional refused
    requests. gain: improvement of the goal as a share. tested: ratio in the test; None if it was
    not promising enough to be tested. small: it passed the test, but with less than the model's own
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
    """The result of an advice. own: the user's tables with only this allocator; `today`: the same
    with the pool in bytes. changes: every single change, best first. not_tried: invalid settings,
    each with its error. taken: changes of the best setting found, in the order of adding. lost:
    changes of a setting that fresh replicates did not confirm. base: the mean of the goal with
    unchanged settings, in the search. saturated: number of saturated runs among these. reported:
    the best setting against the unchanged one on replicates that the search has not seen; None if
    nothing helped. reported_also: likewise of the other numbers. baseline: of the scenario as it
    is. notes: on its runs in the search.
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
    """The goal with this name; the InputError for an unknown name lists all."""
    check_number(name, "--goal")
    return Goal(name, name in RATES)


def value_text(value: Any) -> str:
    """A value as in a scenario's tables; a table is given by its kind and size."""
    if isinstance(value, Mapping):
        size = value.get("kv_offloading_size", value.get("max_local_cpu_size"))
        return str(value.get("kind")) + ("" if size is None else f" {size:g} GiB")
    if isinstance(value, list):
        return ", ".join(map(value_text, value))
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
