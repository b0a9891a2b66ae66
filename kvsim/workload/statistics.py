"""Statistics of a trace: rates, burstiness, lengths."""

from typing import NamedTuple

import numpy as np

from kvsim.plumbing.units import PS_PER_US, seconds_from_ps
from kvsim.workload.traces.record import Trace

PEAK_WINDOW_PS = 10 * 10**12


class LengthStatistics(NamedTuple):
    """Mean and percentiles of lengths in tokens (percentiles are linear between order
    statistics).
    """

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class ArrivalStatistics(NamedTuple):
    """Arrival rates. rate_per_s: rows over the time from first to last. peak_10s_per_s: the most
    rows in any 10 seconds, over 10. gap_cv: coefficient of variation of the gaps. None if no time
    passes.
    """

    duration_s: float
    rate_per_s: float | None
    peak_10s_per_s: float
    gap_cv: float | None


def length_statistics(tokens: list[int]) -> LengthStatistics:
    """Statistics of one or more lengths."""
    values = np.array(tokens, dtype=np.float64)
    p50, p90, p99 = np.percentile(values, [50, 90, 99]).tolist()
    return LengthStatistics(float(values.mean()), p50, p90, p99, float(values.max()))


def arrival_statistics(trace: Trace) -> ArrivalStatistics | None:
    """Arrival statistics of the rows with a recorded time; None if fewer than two rows have one."""
    times = _times(trace)
    if len(times) < 2:
        return None
    unit_ps = 1 if times[-1] < 1 << 62 else PS_PER_US  # 53 days of ps fit 62 bits
    ticks = np.array([time // unit_ps for time in times], dtype=np.int64)
    gaps = np.diff(ticks).astype(np.float64)
    duration_s = seconds_from_ps(times[-1])
    in_window = np.searchsorted(ticks, ticks + PEAK_WINDOW_PS // unit_ps) - np.arange(len(ticks))
    mean = gaps.mean()
    rate = len(times) / duration_s if duration_s else None
    return ArrivalStatistics(
        duration_s=duration_s,
        rate_per_s=rate,
        peak_10s_per_s=max(float(in_window.max()) / 10, rate or 0.0),  # of less than 10 s too
        gap_cv=float(gaps.std() / mean) if mean else None,
    )


def _times(trace: Trace) -> list[int]:
    """Times in ps from the first row on."""
    times = [row.arrival_ps for row in trace.rows if row.arrival_ps is not None]
    return [time - times[0] for time in times]
