"""Inverse distribution functions for token lengths and durations: a quantile grid, and a mixture of
lognormals.
"""

from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, model_validator

from kvsim.plumbing.options import Options
from kvsim.workload import grids
from kvsim.workload.options import shares


class Grid(Options):
    """A distribution by quantiles with linear interpolation: `quantiles` at `probabilities`, or a
    shipped grid by `name`.

    probabilities rise from 0 to 1; without them the quantiles are evenly spaced.
    """

    name: str | None = None
    quantiles: tuple[NonNegativeFloat, ...] = ()
    probabilities: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.name is None) == (not self.quantiles):
            raise ValueError("a grid takes either a name or quantiles")
        if self.name is not None and self.probabilities:
            raise ValueError("a named grid brings its own probabilities")
        points, values = self.points()
        if len(points) != len(values) or len(points) < 2:
            raise ValueError("a grid takes at least 2 quantiles, one for each probability")
        if (points[0], points[-1]) != (0, 1) or any(np.diff(points) <= 0):
            raise ValueError("the probabilities must rise from 0 to 1")
        if any(np.diff(values) < 0):
            raise ValueError("the quantiles must not fall")
        return self

    def points(self) -> tuple[Sequence[float], Sequence[float]]:
        """The grid's points: (probabilities, quantiles)."""
        if self.name is not None:
            return grids.named(self.name, "workload grid")
        even = np.linspace(0, 1, len(self.quantiles)).tolist()
        return self.probabilities or even, self.quantiles

    def invert(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """`count` random values, by inverting the distribution function."""
        points, values = self.points()
        return np.interp(rng.random(count), points, values)


class Lognormal(Options):
    """One lognormal: exp of a normal with mean mu and deviation sigma, of weight `weight`."""

    mu: float
    sigma: NonNegativeFloat
    weight: NonNegativeFloat = 1.0


Mixture = Annotated[tuple[Lognormal, ...], Field(min_length=1)]


def draw_mixture(
    components: Sequence[Lognormal], count: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """`count` values of a mixture of lognormals."""
    which = rng.choice(len(components), size=count, p=weights_of(components))
    mu = np.array([component.mu for component in components])[which]
    sigma = np.array([component.sigma for component in components])[which]
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(mu + sigma * rng.standard_normal(count)))


def weights_of(components: Sequence[Lognormal]) -> list[float]:
    """The components' weights, scaled to sum to 1."""
    return shares([component.weight for component in components], "components.weight")
