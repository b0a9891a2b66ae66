"""A metronome."""

import numpy as np
from pydantic import PositiveFloat

from kvsim.workload.arrivals.process import ArrivalOptions, Schedule, ps


class Constant(ArrivalOptions):
    """One every 1 / rate_per_s, from 0 on."""

    rate_per_s: PositiveFloat

    def schedule(self, count: int, rng: np.random.Generator) -> Schedule:
        """Start k at k / rate_per_s, rounded on its own (errors do not add up); draws nothing."""
        return Schedule(ps(np.arange(count) / self.rate_per_s))
