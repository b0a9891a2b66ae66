"""g(T): the part of a step's time that its token count alone decides (weights, GEMMs, launches).

A form is linear in its coefficients once its shape (a knee, a tile, the knots) is chosen. So a form
offers candidates, each a set of columns to regress on, and the fit finds the coefficients.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.options import Options
from kvsim.step_time.correction import Correction

Tokens = NDArray[np.int64]
Columns = NDArray[np.float64]


class Candidate(NamedTuple):
    """One shape of a form of g(T), such as a hinge with its knee.

    label: the shape in words. columns: tokens [n] -> regressors [n, p], all >= 0.
    build: coefficients [p] in ps, all >= 0 -> the form with integer coefficients.
    """

    label: str
    columns: Callable[[Tokens], Columns]
    build: Callable[[Columns], "TokenCost"]


class TokenCost(Options):
    """One form of g(T); its fields are what a calibration file keeps of it, coefficients in ps
    under names that end with _ps.
    """

    def ps(self, tokens: int) -> int:
        """g(T) in ps for a step of `tokens` >= 1 tokens: >= 0 and never falling with T."""
        raise NotImplementedError(type(self).__name__)  # every registered form overrides this

    def scaled(self, correction: Correction) -> Self:
        """The form with every coefficient in ps (its field ends with _ps) scaled."""
        return self.model_copy(
            update={
                name: tuple(map(correction.scaled, value))
                if isinstance(value, tuple)
                else correction.scaled(value)
                for name, value in self
                if name.endswith("_ps")
            }
        )

    @classmethod
    def candidates(cls, tokens: Tokens) -> Iterator[Candidate]:
        """The shapes worth trying on samples with these token counts [n]."""
        raise NotImplementedError(cls.__name__)  # every registered form overrides this


def ramps(x: Columns, knots: Columns) -> Columns:
    """A constant and one ramp per gap between knots: regressors [n, len(knots)] of a broken line.

    Column i >= 1 climbs from 0 at knot i-1 to 1 at knot i and stays there; the last one climbs on.
    The line's value at knot i is the sum of the first i + 1 coefficients, so coefficients >= 0 make
    a line that never falls. A gap without any sample is a straight line between its ends, never a
    hole at zero.
    """
    columns = [np.ones(len(x))]
    for i in range(1, len(knots)):
        last = i == len(knots) - 1
        climb = (x - knots[i - 1]) / (knots[i] - knots[i - 1])
        columns.append(np.clip(climb, 0.0, None if last else 1.0))
    return np.column_stack(columns)
