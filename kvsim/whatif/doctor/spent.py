"""Means of request times on the fresh replicates; the effect of a cure is a ratio of two of
these.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from kvsim.whatif.doctor.effect import E2E, TPOT, TTFT
from kvsim.whatif.runner import Row
from kvsim.whatif.watch import QueueWaits


class Spent(NamedTuple):
    """Times of one setting, over replicates.

    Means and p99 of latencies in seconds are geometric means, so that the ratio of two settings is
    the printed effect; None where a run has none. waits: means of the shares.
    """

    replicates: int
    e2e_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    e2e_p99_s: float | None
    ttft_p99_s: float | None
    tpot_p99_s: float | None
    waits: QueueWaits


def spent(rows: Sequence[Row]) -> Spent:
    """Means over rows of runs that recorded the causes of waiting."""
    tails = [name.replace(".mean", ".p99") for name in (E2E, TTFT, TPOT)]
    e2e, ttft, tpot, *p99 = (
        _geometric([row.get(name) for row in rows]) for name in (E2E, TTFT, TPOT, *tails)
    )
    shares = (fmean(row[f"waits.{name}"] for row in rows) for name in QueueWaits._fields)
    return Spent(len(rows), e2e, ttft, tpot, p99[0], p99[1], p99[2], QueueWaits(*shares))


def _geometric(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value]
    if len(known) < len(values) or not known:
        return None
    return math.exp(fmean(map(math.log, known)))
