"""The same duration every time."""

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat

from kvsim.workload.durations.distribution import DurationOptions


class FixedDuration(DurationOptions):
    """Durations of always `seconds`."""

    seconds: NonNegativeFloat

    def draw_s(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """`count` times the same; draws nothing."""
        return np.full(count, self.seconds)
