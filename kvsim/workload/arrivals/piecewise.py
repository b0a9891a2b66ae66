"""A piecewise constant rate: a day's load curve, a step, a spike."""

from typing import Annotated, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.workload.arrivals.process import LONGEST_S, ArrivalOptions, Schedule, inhomogeneous, ps


class RatePiece(Options):
    """A rate of rate_per_s for duration_s seconds."""

    duration_s: PositiveFloat
    rate_per_s: NonNegativeFloat


class Piecewise(ArrivalOptions):
    """Poisson arrivals with the rates of `pieces` one after the other, repeated from the start
    after the last.
    """

    pieces: Annotated[tuple[RatePiece, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not any(piece.rate_per_s for piece in self.pieces):
            raise ValueError("at least one piece needs a rate above 0")
        return self

    def schedule(self, count: int, rng: np.random.Generator) -> Schedule:
        """Starts of `count` arrivals, repeating the rates as often as needed."""
        lengths = np.array([piece.duration_s for piece in self.pieces])
        rates = np.array([piece.rate_per_s for piece in self.pieces])
        # 10 standard deviations above the mean: more than these arrivals never need
        rounds = int((count + 10 * np.sqrt(count) + 30) / (lengths @ rates)) + 1
        if rounds * lengths.sum() > LONGEST_S:
            raise InputError(
                "the rates are too low for the requests",
                where="workload.arrivals.pieces",
                value=f"{rounds * lengths.sum():.3g} s for {count:,} requests",
                limit=f"{LONGEST_S:.3g} s",
            )
        boundaries = np.concatenate(([0.0], np.cumsum(np.tile(lengths, rounds))))
        return Schedule(ps(inhomogeneous(boundaries, np.tile(rates, rounds), count, rng)))
