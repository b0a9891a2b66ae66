"""Gamma-distributed gaps, burstier or more regular than Poisson's by their coefficient of
variation.
"""

import numpy as np
from pydantic import PositiveFloat

from kvsim.workload.arrivals.process import ArrivalOptions, Schedule, renewal


class Gamma(ArrivalOptions):
    """Gamma gaps of mean 1 / rate_per_s; cv > 1 is bursty, cv < 1 is regular, cv = 1 is Poisson."""

    rate_per_s: PositiveFloat
    cv: PositiveFloat = 1.0

    def schedule(self, count: int, rng: np.random.Generator) -> Schedule:
        """Gamma gaps of shape 1 / cv^2."""
        shape = self.cv**-2
        return renewal(rng.standard_gamma(shape, count) / (shape * self.rate_per_s))
