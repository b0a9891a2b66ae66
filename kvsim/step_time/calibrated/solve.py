"""Nonnegative least squares from normal equations, so that folds and resamples cost a sum each."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


# Directions this much weaker than the strongest are noise of the floating point, not of the data.
_WEAKEST = 1e-13


class Normal(NamedTuple):
    """Normal equations of a weighted regression: gram [p, p] = X'WX, moment [p] = X'Wy."""

    gram: Floats
    moment: Floats

    @classmethod
    def of(cls, columns: Floats, target: Floats, weights: Floats) -> "Normal":
        """The normal equations of regressors [n, p], target [n] and weights [n] >= 0."""
        weighted = columns * weights[:, None]
        return cls(weighted.T @ columns, weighted.T @ target)

    @classmethod
    def total(cls, parts: "Iterable[Normal]") -> "Normal":
        """The equations of all the rows of disjoint parts."""
        grams, moments = zip(*parts, strict=True)
        return cls(sum(grams[1:], grams[0]), sum(moments[1:], moments[0]))

    def solve(self) -> Floats:
        """Coefficients [p] >= 0 of the least weighted squared error."""
        from scipy.optimize import nnls

        scale = np.sqrt(np.maximum(np.diag(self.gram), 0.0))
        scale[scale == 0.0] = 1.0  # an empty column: its coefficient comes out as 0
        values, vectors = np.linalg.eigh(self.gram / np.outer(scale, scale))
        kept = values > _WEAKEST * values[-1]
        root = np.sqrt(values[kept])
        matrix = root[:, None] * vectors[:, kept].T
        target = (vectors[:, kept].T @ (self.moment / scale)) / root
        solution: Floats = nnls(matrix, target)[0] / scale
        return solution
