"""Geometrically distributed counts: after each one, the probability of another is the same."""

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from kvsim.workload.lengths.distribution import MOST, LengthOptions, Lengths


class GeometricLength(LengthOptions):
    """Geometric distribution on 1, 2, ... with mean `mean`."""

    mean: Annotated[float, Field(ge=1, le=MOST)]

    def draw(self, count: int, rng: np.random.Generator, base: Path) -> Lengths:
        """`count` geometric counts."""
        return np.minimum(rng.geometric(1 / self.mean, size=count), MOST)
