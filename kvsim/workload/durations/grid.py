"""Durations drawn from measured quantiles."""

import numpy as np
from numpy.typing import NDArray

from kvsim.workload.durations.distribution import DurationOptions
from kvsim.workload.quantiles import Grid


class GridDuration(Grid, DurationOptions):
    """Durations by quantiles in seconds, given in the scenario or shipped with kvsim."""

    def draw_s(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """`count` durations, drawn by inverting the distribution function."""
        return self.invert(count, rng)
