"""A batch job: everything is there at the start."""

import numpy as np

from kvsim.workload.arrivals.process import ArrivalOptions, Schedule


class AtOnce(ArrivalOptions):
    """All at time 0."""

    def schedule(self, count: int, rng: np.random.Generator) -> Schedule:
        """Zeros; draws nothing."""
        return Schedule(np.zeros(count, dtype=np.int64))
