"""The result of a fit, as stored in a calibration file."""

from collections.abc import Sequence

import numpy as np

from kvsim.plumbing.options import Options
from kvsim.step_time.calibrated.domain import Domain
from kvsim.step_time.calibrated.formula import Formula
from kvsim.step_time.calibrated.samples import KINDS, Kind


class Errors(Options):
    """Relative errors (predicted / measured - 1) of n steps, as fractions.

    mape: mean of the absolute ones; p50, p90, max: of the absolute ones; bias: mean, with its sign.
    """

    n: int
    mape: float
    p50: float
    p90: float
    max: float
    bias: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> "Errors":
        """Summarise a non-empty list of relative errors."""
        size = np.abs(errors)
        p50, p90 = np.percentile(size, [50, 90])
        figures = (size.mean(), p50, p90, size.max(), np.mean(errors))
        mape, half, most, worst, bias = (round(float(figure), 6) for figure in figures)
        return cls(n=len(size), mape=mape, p50=half, p90=most, max=worst, bias=bias)

    @classmethod
    def by_kind(cls, errors: Sequence[float], kinds: Sequence[Kind]) -> "dict[Kind, Errors]":
        """The errors of each kind of step that occurs, by kind."""
        parts = {
            kind: [e for e, k in zip(errors, kinds, strict=True) if k == kind] for kind in KINDS
        }
        return {kind: cls.of(part) for kind, part in parts.items() if part}


class Tried(Options):
    """The best shape of one form of g, and its held-out mean absolute relative error by kind."""

    form: str
    label: str
    held_out_mape: dict[Kind, float]


class TokenInterval(Options):
    """The interval of g at one token count, in ps."""

    tokens: int
    low_ps: int
    high_ps: int


class Intervals(Options):
    """Bootstrap intervals: whole shapes resampled, the chosen form fitted again.

    level: the fraction they hold. terms: (low, high) in ps per unit, by name.
    """

    level: float
    resamples: int
    terms: dict[str, tuple[int, int]]
    token_cost: tuple[TokenInterval, ...]


class Fit(Options):
    """The fit: the formula, where it holds, and how well.

    residuals: errors on the samples of the fit. held_out: errors on held-out samples, each step
    predicted by a fit without its fold (folds by shape: chunks and decode sequences). seed: of
    folds and resamples.
    """

    label: str
    formula: Formula
    domain: Domain
    intervals: Intervals
    residuals: dict[Kind, Errors]
    held_out: dict[Kind, Errors]
    folds: int
    seed: int
    tried: tuple[Tried, ...]
