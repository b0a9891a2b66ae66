"""Fitted lengths: a mixture of lognormals."""

from pathlib import Path

import numpy as np
from pydantic import PositiveInt

from kvsim.workload.lengths.distribution import LengthOptions, Lengths, whole
from kvsim.workload.quantiles import Mixture, draw_mixture


class LognormalLength(LengthOptions):
    """A mixture of lognormals, rounded to whole tokens and clipped to min_tokens .. max_tokens."""

    components: Mixture
    min_tokens: PositiveInt = 1
    max_tokens: PositiveInt | None = None

    def draw(self, count: int, rng: np.random.Generator, base: Path) -> Lengths:
        """`count` lengths of the mixture."""
        values = draw_mixture(self.components, count, rng)
        return whole(values, self.min_tokens, self.max_tokens)
