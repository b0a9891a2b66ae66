"""The interface of a distribution of durations."""

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.options import Options


class DurationOptions(Options):
    """Options of one distribution of durations, in seconds."""

    def draw_s(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """`count` independent durations in seconds, each >= 0."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this
