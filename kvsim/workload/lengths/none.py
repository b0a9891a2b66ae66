"""No output: only the prompt is computed, as for an embedding, a score or warming a cache."""

from pathlib import Path

import numpy as np

from kvsim.workload.lengths.distribution import LengthOptions, Lengths


class NoOutput(LengthOptions):
    """Zero tokens; only allowed for outputs."""

    least = 0

    def draw(self, count: int, rng: np.random.Generator, base: Path) -> Lengths:
        """`count` zeros; uses no random numbers."""
        return np.zeros(count, dtype=np.int64)
