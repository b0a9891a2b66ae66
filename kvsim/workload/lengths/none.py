"""No output: the prompt alone is computed, as for an embedding, a score or a cache to warm."""

from pathlib import Path

import numpy as np

from kvsim.workload.lengths.distribution import LengthOptions, Lengths


class NoOutput(LengthOptions):
    """No tokens. It belongs to outputs."""

    least = 0

    def draw(self, count: int, rng: np.random.Generator, base: Path) -> Lengths:
        """`count` zeros; draws nothing."""
        return np.zeros(count, dtype=np.int64)
