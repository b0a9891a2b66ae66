"""A rate that oscillates about its mean, such as day and night."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from kvsim.workload.arrivals.process import ArrivalOptions, Schedule, ps


class Sinusoidal(ArrivalOptions):
    """Poisson with rate_per_s * (1 + amplitude * sin(2 pi t / period_s)) at time t."""

    rate_per_s: PositiveFloat
    amplitude: Annotated[float, Field(ge=0, le=1)] = 0.5
    period_s: PositiveFloat = 86_400.0

    def schedule(self, count: int, rng: np.random.Generator) -> Schedule:
        """Schedule by time change: the integral of the rate is inverted by bisection."""
        target = np.cumsum(rng.standard_exponential(count)) / self.rate_per_s
        low, high = np.maximum(target - self._swing(), 0), target.copy()
        for _ in range(60):
            middle = (low + high) / 2
            below = self._mean_time(middle) < target
            low = np.where(below, middle, low)
            high = np.where(below, high, middle)
        return Schedule(ps(np.maximum.accumulate(high)))

    def _swing(self) -> float:
        """The largest excess of the integrated rate over that of the constant mean rate."""
        return self.amplitude * self.period_s / np.pi

    def _mean_time(self, at_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """The integral of the rate up to each time, divided by the mean rate: seconds in which the
        mean rate gives as many arrivals.
        """
        return at_s + self._swing() / 2 * (1 - np.cos(2 * np.pi * at_s / self.period_s))
