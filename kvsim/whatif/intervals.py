"""Means over seeds with their intervals (`kvsim.report.intervals`), and differences of pairs.

Two settings that ran on the same seeds are compared pair by pair: the effect of a seed on both
cancels. Where the interval of the differences holds zero, no difference was seen.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from kvsim.report import numbers
from kvsim.report.intervals import CONFIDENCE, interval

UNSEEN = "no difference seen"
INDISTINCT = "cannot be distinguished"
ALIKE = 0.05  # a difference that lies within this share for certain is none to speak of


class SeedMean(NamedTuple):
    """A mean over seeds, and the half width of its interval; None where there is one seed.

    by_factors: the geometric mean; its interval extends by the same factor below and above.
    """

    mean: float
    half_width: float | None
    by_factors: bool = False

    @property
    def low(self) -> float:
        """The interval's lower end; the mean without an interval."""
        if self.by_factors and self.high:
            return self.mean**2 / self.high
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        """The interval's upper end; the mean without an interval."""
        return self.mean + (self.half_width or 0.0)


def mean_interval(
    values: Sequence[float], level: float = CONFIDENCE, *, times: bool = False
) -> SeedMean:
    """The mean of one value a seed (at least one), at this confidence level. times: the geometric
    mean, where all are above 0.
    """
    found = interval(values, level, times=times)
    if found is not None and found.by_factors:
        return SeedMean(*found)
    half_width = None if found is None else found.half
    return SeedMean(math.fsum(values) / len(values), half_width)


class PairedDifference(NamedTuple):
    """The difference of pairs over the same seeds. of: second - first. base: mean of the first."""

    of: SeedMean
    base: float

    @property
    def seen(self) -> bool:
        """Whether the interval leaves zero out. Without an interval any difference is seen: nothing
        in the runs is random.
        """
        return self.of.low > 0 or self.of.high < 0

    @property
    def relative(self) -> float | None:
        """The mean difference as a share of the first's mean; None where that is 0."""
        return self.of.mean / self.base if self.base else None


def paired(
    first: Sequence[float], second: Sequence[float], level: float = CONFIDENCE
) -> PairedDifference:
    """The differences second - first, seed by seed; both have the same seeds in the same order."""
    differences = [b - a for a, b in zip(first, second, strict=True)]
    return PairedDifference(mean_interval(differences, level), math.fsum(first) / len(first))


def difference_text(first: Sequence[float], second: Sequence[float], *, times: bool = False) -> str:
    """How far the second reads above the first, `+12.3 %`. Where chance may make the difference:
    that none is seen, if it is small for certain, else that so few seeds do not tell. times: by
    the geometric mean of the ratios, where all are above 0.
    """
    if times and min(*first, *second) > 0:
        of = ratio(first, second)
        return _change(of.mean) if of.seen else _unseen(of.low, of.high, len(first))
    difference = paired(first, second)
    if not difference.seen:
        base = abs(difference.base) or math.inf
        low, high = difference.of.low, difference.of.high
        wide = (low < 0 or high > 0) and base == math.inf
        return _unseen(*((-1.0, 1.0) if wide else (low / base, high / base)), len(first))
    return "worse" if difference.relative is None else _change(difference.relative)


def _unseen(low: float, high: float, seeds: int) -> str:
    small = low >= -ALIKE and high <= ALIKE
    return UNSEEN if small else f"{INDISTINCT} by {numbers.plural(seeds, 'seed')}"


def more_seeds(texts: Sequence[str], seeds: int) -> str | None:
    """The remedy for differences that so few seeds do not tell; None where there are none."""
    if not any(text.startswith(INDISTINCT) for text in texts):
        return None
    return f"Add --repeat {max(5, 2 * seeds)}."


def _change(relative: float) -> str:
    share = 100 * relative
    return f"{share:+,.0f} %" if abs(share) >= 999.5 else f"{share:+.3g} %"


_NOISE = 1e-9  # of floats: the logarithms of equal runs differ by less


class Ratio(NamedTuple):
    """The relative difference of pairs, as shares of the first. mean: the geometric mean. low,
    high: the ends of its interval, or the mean where there is one pair.
    """

    mean: float
    low: float
    high: float

    @property
    def seen(self) -> bool:
        """Whether the interval leaves zero out; of one pair, whether there is any difference."""
        return not self.same and (self.low > 0 or self.high < 0)

    @property
    def same(self) -> bool:
        """Whether there is no difference at all."""
        return max(map(abs, self)) < _NOISE


def ratio(first: Sequence[float], second: Sequence[float], level: float = CONFIDENCE) -> Ratio:
    """The ratios second / first, seed by seed; all values above 0.

    Waits grow by factors under load, so their ratios differ less from seed to seed than their
    differences do.
    """
    logs = [math.log(b / a) for a, b in zip(first, second, strict=True)]
    of = mean_interval(logs, level)
    return Ratio(math.expm1(of.mean), math.expm1(of.low), math.expm1(of.high))


def ratio_text(of: Ratio | None) -> str:
    """A ratio with its interval: `-17 % (-26 to -7.6)`."""
    if of is None:
        return numbers.NOTHING
    if of.same:
        return "0 %"
    mean = f"{_share(of.mean)} %"
    same = of.low == of.mean == of.high
    return mean if same else f"{mean} ({_share(of.low)} to {_share(of.high)})"


def _share(of: float) -> str:
    share = 100 * of
    return f"{share:+,.0f}" if abs(share) >= 9.95 else f"{share:+.2g}"
