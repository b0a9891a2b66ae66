"""Bursts: alternating busy and quiet periods, with Poisson arrivals in each."""

from typing import Annotated

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat

from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.errors import InputError
from kvsim.workload.arrivals.process import LONGEST_S, ArrivalOptions, Schedule, inhomogeneous, ps
from kvsim.workload.durations import DURATIONS, DurationOptions


class OnOff(ArrivalOptions):
    """Poisson arrivals at rate_per_s during `on` periods (the first starts at 0), and at
    off_rate_per_s during `off` periods.
    """

    rate_per_s: PositiveFloat
    off_rate_per_s: NonNegativeFloat = 0.0
    on: Annotated[DurationOptions, OneOf(DURATIONS, "workload.arrivals.on")]
    off: Annotated[DurationOptions, OneOf(DURATIONS, "workload.arrivals.off")]

    def schedule(self, count: int, rng: np.random.Generator) -> Schedule:
        """Draw alternating periods until there are `count` arrivals."""
        seeds = rng.bit_generator.random_raw(2)
        unit = np.random.Generator(np.random.PCG64(seeds[0]))
        periods = np.random.Generator(np.random.PCG64(seeds[1]))
        lengths = np.empty(0)
        batch = 64
        while True:
            fresh = np.empty(2 * batch)
            fresh[0::2] = self.on.draw_s(batch, periods)
            fresh[1::2] = self.off.draw_s(batch, periods)
            lengths = np.concatenate((lengths, fresh))
            rates = np.resize([self.rate_per_s, self.off_rate_per_s], len(lengths))
            # 10 standard deviations above the mean: more than these arrivals never need
            if lengths @ rates > count + 10 * np.sqrt(count) + 30:
                break
            if lengths.sum() > LONGEST_S or batch > 1 << 19:
                raise InputError(
                    "the on periods are too short for the requests",
                    where="workload.arrivals.on",
                    value=f"{lengths @ rates:.3g} arrivals in {lengths.sum():.3g} s",
                    limit=f"{count:,} requests",
                )
            batch *= 2
        boundaries = np.concatenate(([0.0], np.cumsum(lengths)))
        return Schedule(ps(inhomogeneous(boundaries, rates, count, unit)))
