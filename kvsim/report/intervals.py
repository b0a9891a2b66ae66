"""What several seeds say of a number: its mean, and how far off that may be."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """mean - half <= the number that more seeds would approach <= mean + half, so sure."""

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
