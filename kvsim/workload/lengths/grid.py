"""Lengths drawn from measured quantiles."""

from pathlib import Path

import numpy as np

from kvsim.workload.lengths.distribution import LengthOptions, Lengths, whole
from kvsim.workload.quantiles import Grid


class GridLength(Grid, LengthOptions):
    """Lengths by quantiles in tokens, given in the scenario or shipped with kvsim; interpolated
    values are rounded.
    """

    def draw(self, count: int, rng: np.random.Generator, base: Path) -> Lengths:
        """`count` lengths, drawn by inverting the distribution function."""
        return whole(self.invert(count, rng), 1, None)
