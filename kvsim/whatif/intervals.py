"""What seeds allow to say: means with intervals, and differences of pairs.

Student's t over independent seeds. Two settings run on the same seeds are compared pair by pair:
what a seed brings to both cancels, and where the interval of the differences holds zero, no
difference was seen.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from kvsim.report.intervals import CONFIDENCE, interval


class Interval(NamedTuple):
    """A mean over `seeds` runs, and the half width of its interval; None: one run allows none."""

    mean: float
    half_width: float | None
    seeds: int

    @property
    def low(self) -> float:
        """The interval's lower end; the mean without an interval."""
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        """The interval's upper end; the mean without an interval."""
        return self.mean + (self.half_width or 0.0)


def mean_interval(values: Sequence[float], level: float = CONFIDENCE) -> Interval:
    """The mean of one value a seed (at least one), at this confidence level."""
    found = interval(values, level)
    half_width = None if found is None else found.half
    return Interval(math.fsum(values) / len(values), half_width, len(values))


class PairedDifference(NamedTuple):
    """Of pairs over the same seeds: how much the second reads above the first."""

    of: Interval
    base: float

    @property
    def seen(self) -> bool:
        """Whether the interval leaves zero out. Without an interval any difference is seen: with
        nothing random there is no chance to blame.
        """
        return self.of.low > 0 or self.of.high < 0

    @property
    def relative(self) -> float | None:
        """The mean difference as a share of the first's mean; None where that is 0."""
        return self.of.mean / self.base if self.base else None


def paired(
    first: Sequence[float], second: Sequence[float], level: float = CONFIDENCE
) -> PairedDifference:
    """The differences second - first, seed by seed (the same seeds in the same order)."""
    differences = [b - a for a, b in zip(first, second, strict=True)]
    return PairedDifference(mean_interval(differences, level), math.fsum(first) / len(first))


class Ratio(NamedTuple):
    """How much a second setting reads above the first, as shares of the first: the geometric mean
    over the pairs, and the ends of its interval (the mean itself where one pair allows none).
    """

    mean: float
    low: float
    high: float

    @property
    def seen(self) -> bool:
        """Whether the interval leaves zero out; of one pair, whether there is any difference."""
        return self.low > 0 or self.high < 0


def ratio(first: Sequence[float], second: Sequence[float], level: float = CONFIDENCE) -> Ratio:
    """The ratios second / first, seed by seed; all values above 0.

    Waits grow by factors under load, so their ratios differ less from seed to seed than their
    differences do.
    """
    logs = [math.log(b / a) for a, b in zip(first, second, strict=True)]
    of = mean_interval(logs, level)
    return Ratio(math.expm1(of.mean), math.expm1(of.low), math.expm1(of.high))
