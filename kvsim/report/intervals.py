"""The mean of a number over several seeds, with its confidence interval.

Shares, rates and counts differ little from seed to seed. Student's interval of their mean contains
it as often as its level says. Times under load differ by factors: a few seeds hold most of the sum,
and most samples have none of them. There the same interval contained the mean in 39 to 85 of 100
trials, the fewer the more seeds it had. So the geometric mean of times is reported, with Student's
interval over the logarithms. It holds that mean in 91 to 99 of 100 trials for a queue up to
saturation (tests/report/test_intervals.py). Where a pool just begins to bind, a few seeds wait long
and the others not at all, and it is only an indication. It contained the mean in 57 to 77 of 100
trials (OPT-13B, 2.2 requests a second, 240 seeds of 200 requests).
"""

from collections.abc import Sequence
from functools import cache
from math import exp, expm1, log, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

CONFIDENCE = 0.95
# What a reader of such an interval has to know, wherever one is shown.
NARROW = (
    "Intervals of times are those of geometric means over the seeds: 95 % for queues up to "
    "saturation, too narrow (57 to 77 %) where memory just begins to bind."
)
_MOST = 60.0  # of a logarithm: a factor that no two seeds differ by


class Interval(NamedTuple):
    """A confidence interval with its upper end at mean + half.

    by_factors: `mean` is the geometric mean, and the lower end is the same factor below it as the
    upper end is above. Otherwise the lower end is mean - half.
    """

    mean: float
    half: float
    by_factors: bool = False

    @property
    def low(self) -> float:
        """The lower end."""
        return self.mean**2 / self.high if self.by_factors else self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end."""
        return self.mean + self.half


def interval(
    values: Sequence[float], confidence: float = CONFIDENCE, *, times: bool = False
) -> Interval | None:
    """Student's t interval of the mean of independent values; None for fewer than two.

    times: the values are times; if all are above 0, use the geometric mean and the logarithms.
    """
    n = len(values)
    if n < 2:
        return None
    quantile = _student((1 + confidence) / 2, n - 1) / sqrt(n)
    if not times or min(values) <= 0:
        return Interval(fmean(values), quantile * stdev(values))
    logs = [log(value) for value in values]
    mean = exp(fmean(logs))
    return Interval(mean, mean * expm1(min(quantile * stdev(logs), _MOST)), True)


@cache
def _student(share: float, degrees: int) -> float:
    """A quantile of Student's t distribution."""
    from scipy.stats import t

    return float(t.ppf(share, degrees))
