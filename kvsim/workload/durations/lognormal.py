"""Long-tailed durations: a mixture of lognormals."""

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from kvsim.workload.durations.distribution import DurationOptions
from kvsim.workload.quantiles import Mixture, draw_mixture


class LognormalDuration(DurationOptions):
    """A mixture of lognormals in seconds, cut at `max_s`."""

    components: Mixture
    max_s: PositiveFloat = 86_400.0

    def draw_s(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """`count` durations; longer ones than max_s become max_s."""
        return np.minimum(draw_mixture(self.components, count, rng), self.max_s)
