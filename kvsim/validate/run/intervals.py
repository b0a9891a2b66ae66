"""Bootstrap intervals: how much an error would change with another draw of requests or steps.

Requests are drawn one by one, as if independent, but requests in a queue wait for each other. So
such a range contains the expected error of mean waits in only 10 to 60 of 100 trials
(tests/report/test_intervals.py). It shows how much a few requests influence the error, and no more.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from kvsim.observed.folder import ObservedRun
from kvsim.validate.run.errors import recorded_times, request_times, simulated_times
from kvsim.validate.run.replay import Replay

LEVEL = 0.95
# What a reader of such a range has to know, wherever one is shown.
DRAWN_AGAIN = (
    "95 % of the means of requests drawn again one by one, as if none waited for another: too "
    "narrow for waits under load"
)
RESAMPLES = 1000
Interval = tuple[float, float]


def mean_interval(values: Sequence[float]) -> Interval:
    """Bootstrap interval of the mean of at least one value."""
    data = np.asarray(values)
    return ends([float(data[drawn].mean()) for drawn in _draws(len(data))])


def latency_intervals(run: ObservedRun, replay: Replay, which: list[int]) -> dict[str, Interval]:
    """Bootstrap intervals of the relative errors of the mean ttft_s, tpot_s and e2e_s.

    Requests are drawn with replacement, each with its recorded and its simulated time.
    """
    simulated = request_times(run, simulated_times(replay), which)
    found = {}
    for name, own in request_times(run, recorded_times(run), which).items():
        if len(own):
            its = simulated[name]
            draws = _draws(len(own))
            found[name] = ends([float(its[at].mean() / own[at].mean()) - 1.0 for at in draws])
    return found


def ratio_interval(
    parts: Sequence[float], others: Sequence[float], wholes: Sequence[float]
) -> Interval:
    """Bootstrap interval of (sum(parts) - sum(others)) / sum(wholes); members are drawn with
    replacement, each with all three numbers.
    """
    first, second, whole = (np.asarray(each, dtype=float) for each in (parts, others, wholes))
    draws = _draws(len(whole))
    return ends([float((first - second)[at].sum() / whole[at].sum()) for at in draws])


def _draws(count: int) -> Iterator[NDArray[np.int64]]:
    """RESAMPLES random samples of `count` indices with replacement; the seed is `count`, so results
    repeat.
    """
    random = Generator(PCG64(count))
    for _ in range(RESAMPLES):
        yield random.integers(count, size=count)


def ends(values: Sequence[float]) -> Interval:
    """The quantiles that enclose the middle LEVEL (95 %) of the values."""
    rest = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(values, [rest, 1.0 - rest]).tolist()
    return low, high
