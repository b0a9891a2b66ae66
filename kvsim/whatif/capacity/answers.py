"""The answers of a capacity: edges found seed by seed, and what follows from them."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from kvsim.report import numbers
from kvsim.whatif.capacity.bisection import Bracket
from kvsim.whatif.capacity.short_streams import ShortStream
from kvsim.whatif.intervals import SeedMean, mean_interval
from kvsim.whatif.runner import Row
from kvsim.whatif.scenario_tables import Table

BEST = "the best"  # `behind` of the value that the others are compared with


class CapacitySubject(NamedTuple):
    """One allocator, and the scenario's tables with it alone."""

    label: str
    kind: str
    table: Table


class Edge(NamedTuple):
    """The answer of one seed. inside, outside: rows of the runs at the last value that kept the
    objectives and at the first that did not; None where there was no such run.
    """

    seed: int
    bracket: Bracket
    inside: Row | None
    outside: Row | None


@dataclass(frozen=True)
class CapacityAnswer:
    """The value that one allocator holds out. rate_per_s: the rate it was looked for at; None where
    the rate itself was looked for, or the scenario's own. edges: one a seed. utilization: the
    gpu_memory_utilization that leaves the pool.
    """

    subject: CapacitySubject
    rate_per_s: float | None
    edges: tuple[Edge, ...]
    utilization: float | None = None

    @property
    def values(self) -> list[float] | None:
        """The values that were kept, one a seed; None if a seed keeps none of them."""
        found = [edge.bracket.kept for edge in self.edges]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else None

    @property
    def interval(self) -> SeedMean | None:
        """The mean of `values` with its interval."""
        return None if self.values is None else mean_interval(self.values)

    @property
    def utilization_to_set(self) -> float | None:
        """The `utilization`, rounded up to three digits: the pool is not smaller with it."""
        return None if self.utilization is None else math.ceil(1000 * self.utilization) / 1000

    @property
    def open(self) -> bool:
        """Whether a seed kept every value up to the bound, so that there is no edge."""
        return any(edge.bracket.kept and edge.bracket.lost is None for edge in self.edges)


class Tuning(NamedTuple):
    """A setting at one value. answer: the rate that it holds out; None where it cannot be run.
    behind: its distance from the best value, in words.
    """

    value: int
    answer: CapacityAnswer | None
    behind: str


class Replicas(NamedTuple):
    """The number of replicas for a rate, with the scenario's router.

    num: the mean over the seeds of the smallest fleet that kept the objectives when run, rounded
    up; safe: the largest of them. divided: the rate over what one replica holds out, rounded up.
    kept, kept_with_one_less: the seeds in which `num` and `num - 1` replicas kept the objectives.
    requests: at least this many were sent to the fleet, if the workload has them. short: whether
    that is too short to tell.
    """

    rate_per_s: float
    num: int
    safe: int
    divided: int
    kept: int
    kept_with_one_less: int
    seeds: int
    requests: int = 1
    short: ShortStream | None = None


class GoodputPoint(NamedTuple):
    """One point of a goodput curve. within: the share of the requests that keep every limit, over
    the seeds. saturated: the number of saturated seeds.
    """

    rate_per_s: float
    within: SeedMean
    saturated: int


def mean_text(mean: SeedMean | None, *, whole: bool = False) -> str:
    """A mean with half of its interval: `6.1 ± 0.3`; whole: as whole numbers."""
    if mean is None:
        return numbers.NOTHING
    form = numbers.count if whole else numbers.number
    return form(mean.mean) + (f" ± {form(mean.half_width)}" if mean.half_width else "")
