"""A constant length."""

from pathlib import Path

import numpy as np
from pydantic import PositiveInt

from kvsim.workload.lengths.distribution import LengthOptions, Lengths


class FixedLength(LengthOptions):
    """The constant length `tokens`."""

    tokens: PositiveInt

    def draw(self, count: int, rng: np.random.Generator, base: Path) -> Lengths:
        """`count` times the same length; uses no random numbers."""
        return np.full(count, self.tokens, dtype=np.int64)
