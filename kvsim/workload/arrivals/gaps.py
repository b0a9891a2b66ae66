"""Independent gaps between arrivals from any distribution, such as a measured grid."""

from typing import Annotated

import numpy as np
from pydantic import PositiveFloat

from kvsim.plumbing.choice import OneOf
from kvsim.workload.arrivals.process import ArrivalOptions, Schedule, renewal
from kvsim.workload.durations import DURATIONS, DurationOptions


class DurationGaps(ArrivalOptions):
    """Gaps drawn from a distribution of durations, divided by `speedup`."""

    gap: Annotated[DurationOptions, OneOf(DURATIONS, "workload.arrivals.gap")]
    speedup: PositiveFloat = 1.0

    def schedule(self, count: int, rng: np.random.Generator) -> Schedule:
        """A schedule in which the gaps between arrivals are independent draws."""
        return renewal(self.gap.draw_s(count, rng) / self.speedup)
