"""Totals of all rows: how many were sized, and how far off their pools are."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evidence.logs.outcome import Outcome


class PoolErrors(NamedTuple):
    """Quantiles of |error| over `rows` rows: numpy's linear ones; None without any."""

    rows: int
    median: float | None
    p90: float | None
    worst: float | None


class Summary(NamedTuple):
    """rows: in all; sized, refused, unknown: by state.

    pool: of the pools; described: of those with rows that leave no setting open; tokens: of the
    log's own pools in tokens.
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
        """Share of rows that were sized, or refused for a stated reason."""
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
