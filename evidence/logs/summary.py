"""Totals of all rows: how many were sized, and the errors of their pools."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evidence.logs.outcome import Outcome


class PoolErrors(NamedTuple):
    """Quantiles of |error| over `rows` rows, by numpy's linear method; None without rows."""

    rows: int
    median: float | None
    p90: float | None
    worst: float | None


class Summary(NamedTuple):
    """Counts and errors over all rows.

    rows: number of rows. sized, refused, unknown: rows by state. pool: errors of the pool.
    described: errors of the pool for rows that give every setting. tokens: errors of the tokens of
    the logged pool.
    """

    rows: int
    sized: int
    refused: int
    unknown: int
    pool: PoolErrors
    described: PoolErrors
    tokens: PoolErrors

    @property
    def answered(self) -> float:
        """Share of rows that were sized, or refused with a reason."""
        return (self.sized + self.refused) / self.rows


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """The counts and quantiles of at least one outcome."""
    states = [outcome.state for outcome in outcomes]
    return Summary(
        len(outcomes),
        states.count("sized"),
        states.count("refused"),
        states.count("unknown"),
        pool=_errors([each.error for each in outcomes]),
        described=_errors([each.error for each in outcomes if not each.assumed]),
        tokens=_errors([each.tokens_error for each in outcomes]),
    )


def _errors(values: Sequence[float | None]) -> PoolErrors:
    found = [abs(value) for value in values if value is not None]
    if not found:
        return PoolErrors(0, None, None, None)
    median, p90, worst = (float(value) for value in np.quantile(found, [0.5, 0.9, 1.0]))
    return PoolErrors(len(found), median, p90, worst)
