"""One step timed again and again: did the machine stay the same while the others were timed?"""

from typing import NamedTuple

import numpy as np

MOST_SPREAD = {True: 0.03, False: 0.25}  # by whether it is a GPU: between p10 and p90
MOST_DRIFT = {True: 0.02, False: 0.10}  # of the last third against the first


class Sentinel(NamedTuple):
    """n timings of the same step, in seconds. spread: p90 over p10, less one. drift: the median of
    the last third over that of the first, less one. steady: both small enough for a device of its
    kind.
    """

    n: int
    median_s: float
    min_s: float
    max_s: float
    spread: float
    drift: float
    steady: bool

    def warnings(self) -> list[str]:
        """Warnings for readers of the samples."""
        if self.steady:
            return []
        return [
            f"the sentinel spread by {100 * self.spread:.0f} % and drifted by "
            f"{100 * self.drift:+.0f} %: the machine was not the same all the while"
        ]


def judge(seconds: list[float], *, on_gpu: bool) -> Sentinel:
    """The verdict on at least one timing, in the order in which they were taken."""
    third = max(1, len(seconds) // 3)
    low, middle, high = (float(np.percentile(seconds, at)) for at in (10, 50, 90))
    spread = high / low - 1.0
    drift = float(np.median(seconds[-third:]) / np.median(seconds[:third])) - 1.0
    steady = spread <= MOST_SPREAD[on_gpu] and abs(drift) <= MOST_DRIFT[on_gpu]
    return Sentinel(len(seconds), middle, min(seconds), max(seconds), spread, drift, steady)
