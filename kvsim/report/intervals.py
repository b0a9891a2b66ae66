"""The mean of a number over several seeds, with its confidence interval."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A confidence interval: mean - half <= the expectation <= mean + half."""

    mean: float
    half: float


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Student's interval of the mean of independent values; None of fewer than two."""
    from scipy.stats import t

    n = len(values)
    if n < 2:
        return None
    quantile = float(t.ppf((1 + confidence) / 2, n - 1))
    return Interval(fmean(values), quantile * stdev(values) / sqrt(n))
