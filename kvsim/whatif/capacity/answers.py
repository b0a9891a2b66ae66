"""What capacity answers: edges found seed by seed, and what follows from them."""

from dataclasses import dataclass
from typing import NamedTuple

from kvsim.report import numbers
from kvsim.whatif.capacity.bisection import Bracket
from kvsim.whatif.intervals import SeedMean, mean_interval
from kvsim.whatif.runner import Row
from kvsim.whatif.scenario_tables import Table


class CapacitySubject(NamedTuple):
    """One allocator: the scenario's tables with it alone."""

    label: str
    kind: str
    table: Table


class Edge(NamedTuple):
    """One seed's answer, and the rows of the runs just inside and just outside of it."""

    seed: int
    bracket: Bracket
    inside: Row | None
    outside: Row | None


@dataclass(frozen=True)
class Answer:
    """What one allocator holds out at one rate (None: the rate is what was looked for).

    edges: one a seed. utilization: of a pool, the gpu_memory_utilization that leaves it.
    """

    subject: CapacitySubject
    rate_per_s: float | None
    edges: tuple[Edge, ...]
    utilization: float | None = None

    @property
    def values(self) -> list[float] | None:
        """What was kept, one a seed; None if a seed keeps nothing at any value."""
        found = [edge.bracket.kept for edge in self.edges]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else None

    @property
    def interval(self) -> SeedMean | None:
        """The mean of those."""
        return None if self.values is None else mean_interval(self.values)

    @property
    def open(self) -> bool:
        """Whether a seed kept every value there was to try, so that there is no edge."""
        return any(edge.bracket.kept and edge.bracket.lost is None for edge in self.edges)


class Tuning(NamedTuple):
    """A setting at one value, and the rate it holds out. behind: against the best value, in words;
    None where the setting cannot be run.
    """

    value: int
    answer: Answer | None
    behind: str


class Replicas(NamedTuple):
    """How many replicas a rate takes, each with its equal share of it.

    num: by the mean capacity; safe: by the lowest of the seeds. kept, kept_with_one_less: in
    how many seeds `num` and `num - 1` of them kept the objectives when run (None: there is none).
    """

    rate_per_s: float
    num: int
    safe: int
    kept: int
    kept_with_one_less: int | None
    seeds: int


class GoodputPoint(NamedTuple):
    """One point of a goodput curve: of the requests that come at `rate_per_s`, the share that
    keeps every limit, over the seeds.
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
