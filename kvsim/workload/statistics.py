"""What a trace is like: how fast it comes, in what bursts, how long its requests are."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.workload.traces.record import Trace

PEAK_WINDOW_PS = 10 * 10**12


class LengthStatistics(NamedTuple):
    """Tokens: mean and percentiles (linear between order statistics)."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class ArrivalStatistics(NamedTuple):
    """rate_per_s: rows over the time from first to last. peak_10s_per_s: the most rows in any 10
    seconds, over 10. gap_cv: deviation of the gaps over their mean. None where no time passes.
    """

    duration_s: float
    rate_per_s: float | None
    peak_10s_per_s: float
    gap_cv: float | None


def length_statistics(tokens: list[int]) -> LengthStatistics:
    """Of one or more lengths."""
    values = np.array(tokens, dtype=np.float64)
    p50, p90, p99 = np.percentile(values, [50, 90, 99]).tolist()
    return LengthStatistics(float(values.mean()), p50, p90, p99, float(values.max()))


def arrival_statistics(trace: Trace) -> ArrivalStatistics | None:
    """Of the rows that have a time of their own; None if fewer than two have."""
    times = _times(trace)
    if len(times) < 2:
        return None
    gaps = np.diff(times).astype(np.float64)
    duration_s = float(times[-1] - times[0]) / 1e12
    in_window = np.searchsorted(times, times + PEAK_WINDOW_PS) - np.arange(len(times))
    mean = gaps.mean()
    return ArrivalStatistics(
        duration_s=duration_s,
        rate_per_s=len(times) / duration_s if duration_s else None,
        peak_10s_per_s=float(in_window.max()) / 10,
        gap_cv=float(gaps.std() / mean) if mean else None,
    )


def _times(trace: Trace) -> NDArray[np.int64]:
    """Times in ps from the first row on, so that any clock fits 64 bits."""
    times = [row.arrival_ps for row in trace.rows if row.arrival_ps is not None]
    return np.array([time - times[0] for time in times], dtype=np.int64)
