"""Arrivals at equal intervals."""

import numpy as np
from pydantic import PositiveFloat

from kvsim.workload.arrivals.process import ArrivalOptions, Schedule, ps


class Constant(ArrivalOptions):
    """One arrival every 1 / rate_per_s seconds, from time 0 on."""

    rate_per_s: PositiveFloat

    def schedule(self, count: int, rng: np.random.Generator) -> Schedule:
        """Arrival number k at k / rate_per_s, each rounded by itself so that errors do not add up;
        uses no random numbers.
        """
        return Schedule(ps(np.arange(count) / self.rate_per_s))
