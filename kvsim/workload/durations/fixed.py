"""A constant duration."""

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat

from kvsim.workload.durations.distribution import DurationOptions


class FixedDuration(DurationOptions):
    """The constant duration `seconds`."""

    seconds: NonNegativeFloat

    def draw_s(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """`count` times the same duration; uses no random numbers."""
        return np.full(count, self.seconds)
