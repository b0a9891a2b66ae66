"""Weibull-distributed gaps between arrivals."""

import math

import numpy as np
from pydantic import PositiveFloat

from kvsim.workload.arrivals.process import ArrivalOptions, Schedule, renewal


class Weibull(ArrivalOptions):
    """Weibull gaps of mean 1 / rate_per_s; shape < 1 is bursty, 1 is Poisson."""

    rate_per_s: PositiveFloat
    shape: PositiveFloat

    def schedule(self, count: int, rng: np.random.Generator) -> Schedule:
        """Weibull gaps: scale = 1 / (rate * Gamma(1 + 1 / shape))."""
        scale = 1 / (self.rate_per_s * math.gamma(1 + 1 / self.shape))
        return renewal(scale * rng.weibull(self.shape, count))
