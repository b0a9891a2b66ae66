"""Durations as measured: a quantile grid."""

import numpy as np
from numpy.typing import NDArray

from kvsim.workload.durations.distribution import DurationOptions
from kvsim.workload.quantiles import Grid


class GridDuration(Grid, DurationOptions):
    """Quantiles in seconds, given or shipped."""

    def draw_s(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """`count` durations by inversion."""
        return self.invert(count, rng)
