"""A batch job: all requests arrive at the start."""

import numpy as np

from kvsim.workload.arrivals.process import ArrivalOptions, Schedule


class AtOnce(ArrivalOptions):
    """All requests arrive at time 0."""

    def schedule(self, count: int, rng: np.random.Generator) -> Schedule:
        """A schedule in which everything arrives at time 0; uses no random numbers."""
        return Schedule(np.zeros(count, dtype=np.int64))
