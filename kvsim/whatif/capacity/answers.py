"""The answers of a capacity search: the edge of each seed, and values derived from the edges."""

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
    """One allocator, and the scenario's tables with only this allocator."""

    label: str
    kind: str
    table: Table


class Edge(NamedTuple):
    """The edge that one seed's search found. inside, outside: rows of the runs at the last value
    that met the objectives and at the first that did not; None without such a run.
    """

    seed: int
    bracket: Bracket
    inside: Row | None
    outside: Row | None


@dataclass(frozen=True)
class CapacityAnswer:
    """The capacity of one allocator. rate_per_s: the rate at which the value was searched; None if
    the rate itself was searched, or at the scenario's own. edges: one for each seed. utilization:
    the gpu_memory_utilization that leaves the pool.
    """

    subject: CapacitySubject
    rate_per_s: float | None
    edges: tuple[Edge, ...]
    utilization: float | None = None

    @property
    def values(self) -> list[float] | None:
        """The values that met the objectives, one for each seed; None if a seed has none."""
        found = [edge.bracket.kept for edge in self.edges]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else None

    @property
    def interval(self) -> SeedMean | None:
        """The mean of `values` with its interval."""
        return None if self.values is None else mean_interval(self.values)

    @property
    def utilization_to_set(self) -> float | None:
        """The `utilization` rounded up to three digits, so that the pool is not smaller."""
        return None if self.utilization is None else math.ceil(1000 * self.utilization) / 1000

    @property
    def open(self) -> bool:
        """Whether a seed met the objectives at every value up to the bound, so that there is no
        edge.
        """
        return any(edge.bracket.kept and edge.bracket.lost is None for edge in self.edges)


class Tuning(NamedTuple):
    """A setting at one value. answer: the highest rate with it; None if it cannot be run. behind:
    its distance from the best value, in words.
    """

    value: int
    answer: CapacityAnswer | None
    behind: str


class Replicas(NamedTuple):
    """The number of replicas needed for a rate, with the scenario's router.

    num: mean over the seeds of the smallest fleet that met the objectives in a simulation, rounded
    up; safe: the largest over the seeds. divided: the rate over the capacity of one replica,
    rounded up. kept, kept_with_one_less: number of seeds in which `num` and `num - 1` replicas met
    the objectives. requests: at least this many were sent to the fleet, if the workload has them.
    short: whether the stream is too short for a reliable answer.
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
    """One point of a goodput curve. within: the share of the requests that meet every limit, over
    the seeds. saturated: number of saturated seeds.
    """

    rate_per_s: float
    within: SeedMean
    saturated: int


def mean_text(mean: SeedMean | None, *, whole: bool = False) -> str:
    """A mean with half of its interval: `6.1 ± 0.3`; whole: as integers."""
    if mean is None:
        return numbers.NOTHING
    form = numbers.count if whole else numbers.number
    return form(mean.mean) + (f" ± {form(mean.half_width)}" if mean.half_width else "")
