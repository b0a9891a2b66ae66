"""Means over seeds with confidence intervals (see `kvsim.report.intervals`), and paired
differences.

Two settings that ran on the same seeds are compared seed by seed, so that the effect of a seed on
both cancels. If the interval of the differences contains zero, no difference was seen.
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
    """A mean over seeds, and half the width of its confidence interval; None for a single seed.

    by_factors: it is the geometric mean, and the interval extends by the same factor below and
    above.
    """

    mean: float
    half_width: float | None
    by_factors: bool = False

    @property
    def low(self) -> float:
        """Lower end of the interval; the mean if there is no interval."""
        if self.by_factors and self.high:
            return self.mean**2 / self.high
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        """Upper end of the interval; the mean if there is no interval."""
        return self.mean + (self.half_width or 0.0)


def mean_interval(
    values: Sequence[float], level: float = CONFIDENCE, *, times: bool = False
) -> SeedMean:
    """Mean and interval of one value per seed (at least one), at confidence `level`. times: use the
    geometric mean if all values are above 0.
    """
    found = interval(values, level, times=times)
    if found is not None and found.by_factors:
        return SeedMean(*found)
    half_width = None if found is None else found.half
    return SeedMean(math.fsum(values) / len(values), half_width)


class PairedDifference(NamedTuple):
    """The mean difference of two settings over the same seeds. of: mean and interval of second -
    first. base: mean of the first.
    """

    of: SeedMean
    base: float

    @property
    def seen(self) -> bool:
        """Whether the interval excludes zero. Without an interval any difference counts: nothing in
        the runs is random.
        """
        return self.of.low > 0 or self.of.high < 0

    @property
    def relative(self) -> float | None:
        """The mean difference divided by the mean of the first; None if that is 0."""
        return self.of.mean / self.base if self.base else None


def paired(
    first: Sequence[float], second: Sequence[float], level: float = CONFIDENCE
) -> PairedDifference:
    """The differences second - first, seed by seed; both have the same seeds in the same order."""
    differences = [b - a for a, b in zip(first, second, strict=True)]
    return PairedDifference(mean_interval(differences, level), math.fsum(first) / len(first))


def difference_text(first: Sequence[float], second: Sequence[float], *, times: bool = False) -> str:
    """How much larger `second` is than `first`, as text: `+12.3 %`.

    If the difference may be due to chance and its interval is narrow, the text says that none is
    seen. If the interval is wide, it says that the seeds are too few. times: use the geometric mean
    of the ratios, if all values are above 0.
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
    """Advice to add seeds if one of the texts says that there are too few; None otherwise."""
    if not any(text.startswith(INDISTINCT) for text in texts):
        return None
    return f"Add --repeat {max(5, 2 * seeds)}."


def _change(relative: float) -> str:
    share = 100 * relative
    return f"{share:+,.0f} %" if abs(share) >= 999.5 else f"{share:+.3g} %"


_NOISE = 1e-9  # of floats: the logarithms of equal runs differ by less


class Ratio(NamedTuple):
    """The relative difference of paired values, second / first - 1. mean: by the geometric mean.
    low, high: ends of its interval, or the mean if there is a single pair.
    """

    mean: float
    low: float
    high: float

    @property
    def seen(self) -> bool:
        """Whether the interval excludes zero; for a single pair, whether the values differ."""
        return not self.same and (self.low > 0 or self.high < 0)

    @property
    def same(self) -> bool:
        """Whether there is no difference at all."""
        return max(map(abs, self)) < _NOISE


def ratio(first: Sequence[float], second: Sequence[float], level: float = CONFIDENCE) -> Ratio:
    """The relative difference second / first - 1 over seeds; all values must be above 0.

    Waiting times grow by factors under load, so their ratios vary less from seed to seed than their
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
