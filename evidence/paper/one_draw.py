"""Test of a published trace against many simulated ones: is it a draw like the others?

The paper measured one trace of requests, which is not published, so its figures carry that trace's
noise. The mean over many simulated streams need not meet them; one stream more has to be able to.
Nothing is fitted or selected here: the streams are consecutive seeds.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.05
PRINTED = 0.05  # half of the last digit of a published percentage


class Draw(NamedTuple):
    """How far a published trace is from simulated ones, in all its free cells at once.

    streams: number of simulated streams. distance: Hotelling's T squared of one more draw. p:
    probability of a distance at least as large, if cells are normally distributed. rank_p: the same
    without that assumption: the share of all draws, including the published one, that are at least
    as far from the common mean. within: number of streams with every cell within 1, and within 2,
    units of the published one.
    """

    source: str
    cells: tuple[str, ...]
    streams: int
    distance: float
    p: float
    rank_p: float
    within: tuple[int, int]

    @property
    def ok(self) -> bool:
        """Whether the published trace is plausible as one more simulated stream."""
        return self.p >= LEVEL

    def as_dict(self) -> dict[str, Any]:
        """The draw's entry in the JSON answer."""
        numbers = {name: round(getattr(self, name), 6) for name in ("distance", "p", "rank_p")}
        return {
            "source": self.source,
            "cells": list(self.cells),
            "streams": self.streams,
            **numbers,
            "within_1": self.within[0],
            "within_2": self.within[1],
            "level": LEVEL,
            "ok": self.ok,
        }


def half_width(spread: float, streams: int, cells: int, printed: float = PRINTED) -> float:
    """Half the width of the prediction interval around the mean of `streams` for one more draw.

    It covers all of `cells` at once with probability 1 - LEVEL (Bonferroni). `printed`, half a unit
    of the last published digit, is added.
    """
    from scipy.stats import t

    quantile = float(t.ppf(1 - LEVEL / (2 * cells), streams - 1))
    return quantile * spread * sqrt(1 + 1 / streams) + printed


def one_draw(
    source: str,
    published: dict[str, float],
    simulated: Sequence[Sequence[float]],
    printed: float = PRINTED,
) -> Draw:
    """Test whether the published cells are plausible as one more simulated stream.

    published: the free cells by name. simulated: a row per stream with the same cells. printed:
    half a unit of the last published digit. There must be more streams than cells.
    """
    from scipy.stats import f

    rows, paper = np.array(simulated), np.array(list(published.values()))
    streams, cells = rows.shape
    distance = float(_squared(rows, paper[None, :], printed)[0]) * streams / (streams + 1)
    p = float(f.sf(distance * (streams - cells) / (cells * (streams - 1)), cells, streams - cells))
    pooled = np.vstack([rows, paper])
    distances = _squared(pooled, pooled, printed)
    off = np.abs(rows - paper).max(axis=1)
    return Draw(
        source,
        tuple(published),
        streams,
        distance,
        p,
        float((distances >= distances[-1]).mean()),
        (int((off <= 1).sum()), int((off <= 2).sum())),
    )


def _squared(
    of: NDArray[np.float64], places: NDArray[np.float64], printed: float
) -> NDArray[np.float64]:
    """Squared Mahalanobis distance of each place from the mean of `of`, with the covariance of `of`
    plus the variance of rounding in print.
    """
    covariance = np.atleast_2d(np.cov(of.T)) + np.eye(of.shape[1]) * printed**2 / 3
    off = places - of.mean(axis=0)
    found: NDArray[np.float64] = np.einsum("ij,ij->i", off, np.linalg.solve(covariance, off.T).T)
    return found
