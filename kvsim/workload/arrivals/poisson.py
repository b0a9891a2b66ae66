"""Independent users: exponential gaps."""

import numpy as np
from pydantic import PositiveFloat

from kvsim.workload.arrivals.process import ArrivalOptions, Schedule, renewal


class Poisson(ArrivalOptions):
    """A Poisson process of `rate_per_s`."""

    rate_per_s: PositiveFloat

    def schedule(self, count: int, rng: np.random.Generator) -> Schedule:
        """Exponential gaps of mean 1 / rate_per_s."""
        return renewal(rng.standard_exponential(count) / self.rate_per_s)
