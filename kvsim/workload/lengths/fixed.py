"""The same length every time."""

from pathlib import Path

import numpy as np
from pydantic import PositiveInt

from kvsim.workload.lengths.distribution import LengthOptions, Lengths


class FixedLength(LengthOptions):
    """Lengths of always `tokens`."""

    tokens: PositiveInt

    def draw(self, count: int, rng: np.random.Generator, base: Path) -> Lengths:
        """`count` times the same; draws nothing."""
        return np.full(count, self.tokens, dtype=np.int64)
