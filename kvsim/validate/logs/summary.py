"""What all rows say together: how many were sized, and how far off their pools are."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kvsim.validate.logs.outcome import Outcome


class Summary(NamedTuple):
    """rows: in all; sized, refused, unknown: by state; median, p90, worst: of |error|."""

    rows: int
    sized: int
    refused: int
    unknown: int
    median: float | None
    p90: float | None
    worst: float | None

    @property
    def answered(self) -> float:
        """Share of rows that were sized, or refused for a reason of their own."""
        return (self.sized + self.refused) / self.rows


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """The counts and quantiles (numpy's linear ones) of at least one outcome."""
    states = [outcome.state for outcome in outcomes]
    errors = [abs(outcome.error) for outcome in outcomes if outcome.error is not None]
    median, p90, worst = (
        (float(value) for value in np.quantile(errors, [0.5, 0.9, 1.0]))
        if errors
        else (None, None, None)
    )
    return Summary(
        len(outcomes),
        states.count("sized"),
        states.count("refused"),
        states.count("unknown"),
        median,
        p90,
        worst,
    )
