"""Exponentially distributed durations."""

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat

from kvsim.workload.durations.distribution import DurationOptions


class ExponentialDuration(DurationOptions):
    """Exponential durations with mean `mean_s`."""

    mean_s: NonNegativeFloat

    def draw_s(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """`count` exponential durations."""
        return self.mean_s * rng.standard_exponential(count)
