"""Lengths as measured: a quantile grid."""

from pathlib import Path

import numpy as np

from kvsim.workload.lengths.distribution import LengthOptions, Lengths, whole
from kvsim.workload.quantiles import Grid


class GridLength(Grid, LengthOptions):
    """Quantiles in tokens, given or shipped; values in between are rounded."""

    def draw(self, count: int, rng: np.random.Generator, base: Path) -> Lengths:
        """`count` lengths by inversion."""
        return whole(self.invert(count, rng), 1, None)
