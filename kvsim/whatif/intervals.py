"""What seeds allow to say: means with intervals, and differences of pairs.

Student's t over independent seeds. Two settings run on the same seeds are compared pair by pair:
what a seed brings to both cancels, and where the interval of the differences holds zero, no
difference was seen.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

LEVEL = 0.95


class Interval(NamedTuple):
    """A mean over `seeds` runs and the half width of its interval; None where one run, or several
    that do not differ because nothing in them is random, allow none.
    """

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


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """The mean of one value a seed (at least one), at this confidence level."""
    from scipy import stats

    count, mean = len(values), math.fsum(values) / len(values)
    if count < 2:
        return Interval(mean, None, count)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    quantile = float(stats.t.ppf(0.5 + level / 2, count - 1))
    return Interval(mean, quantile * spread / math.sqrt(count), count)


class Difference(NamedTuple):
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


def paired(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> Difference:
    """The differences second - first, seed by seed (the same seeds in the same order)."""
    differences = [b - a for a, b in zip(first, second, strict=True)]
    return Difference(mean_interval(differences, level), math.fsum(first) / len(first))
