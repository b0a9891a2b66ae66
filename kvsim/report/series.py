"""The memory series, thinned to the width of a screen.

A row of the series is a straight line from the value at its first step to the value at its last.
The drawing has one point per bucket of time: the time-weighted mean of those lines, with the lowest
and highest value in the bucket. So no spike is lost, and an area on the screen is byte-seconds.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kvsim.plumbing.units import PS_PER_S

Floats = NDArray[np.float64]


class Buckets(NamedTuple):
    """A series in b buckets of time.

    edges_s: (b + 1,) seconds. mean, low, high: (b, c) with one column per quantity, over the
    recorded time in the bucket; 0 if none of it was recorded.
    """

    edges_s: Floats
    mean: Floats
    low: Floats
    high: Floats

    @property
    def middles_s(self) -> Floats:
        """(b,) centre of each bucket, in seconds."""
        return (self.edges_s[:-1] + self.edges_s[1:]) / 2


def bucketed(
    memory: pd.DataFrame, first: list[str], last: list[str], buckets: int
) -> Buckets | None:
    """Thin the columns `first` (values at a row's first step) and `last` (values at its last step).

    memory: rows in order of time, not overlapping. None if the series covers no time.
    """
    starts = memory["start_ps"].to_numpy(np.float64) / PS_PER_S
    ends = memory["end_ps"].to_numpy(np.float64) / PS_PER_S
    if len(starts) == 0 or ends[-1] <= starts[0]:
        return None
    begin = memory[first].to_numpy(np.float64)
    slope = memory[last].to_numpy(np.float64) - begin
    edges = np.linspace(starts[0], ends[-1], buckets + 1)

    # The integral of every quantity up to each edge, and the time it was taken over.
    lengths = ends - starts
    times_before = np.concatenate([[0.0], np.cumsum(lengths)])
    areas = lengths[:, None] * (begin + slope / 2)
    areas_before = np.vstack([np.zeros((1, begin.shape[1])), np.cumsum(areas, axis=0)])
    row = np.clip(np.searchsorted(starts, edges, side="right") - 1, 0, len(starts) - 1)
    long = np.where(lengths > 0, lengths, 1.0)
    part = np.clip((edges - starts[row]) / long[row], 0.0, 1.0)
    inside = (part * lengths[row])[:, None] * (begin[row] + slope[row] * part[:, None] / 2)
    time = np.diff(times_before[row] + part * lengths[row])
    area = np.diff(areas_before[row] + inside, axis=0)
    # Differences of long sums leave dust where nothing was recorded at all.
    ran = time > 1e-9 * (edges[1] - edges[0])

    # The extremes lie where a row begins, where it ends, or where an edge cuts it.
    low = np.full((buckets, begin.shape[1]), np.inf)
    high = np.full_like(low, -np.inf)
    at_edges = begin[row] + slope[row] * part[:, None]
    cut = (part > 0) & (part < 1)
    for bucket, values in (
        (np.searchsorted(edges, starts, side="right") - 1, begin),
        (np.searchsorted(edges, ends, side="left") - 1, begin + slope),
        (np.flatnonzero(cut) - 1, at_edges[cut]),
        (np.flatnonzero(cut), at_edges[cut]),
    ):
        place = np.clip(bucket, 0, buckets - 1)
        np.minimum.at(low, place, values)
        np.maximum.at(high, place, values)

    mean = np.zeros_like(low)
    mean[ran] = area[ran] / time[ran, None]
    low[~ran], high[~ran] = 0.0, 0.0
    # Rounding may put a mean a hair outside what it is the mean of.
    return Buckets(edges, np.clip(mean, low, high), low, high)
