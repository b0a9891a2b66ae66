"""Whether a run kept up with its arrivals: the one place that judges it.

An engine that keeps up empties its queue now and then; one that does not lets it grow by a share of
all that arrives. A run is saturated when, over the second half of the time in which requests
arrive, the queue was never empty and grew, by more than one in twenty of the requests that arrived
and by more than chance: two standard deviations of a Poisson count of them. The first half is left
to the start, when an empty engine hides any overload.

A saturated run's latencies tell how long it was run, not how it serves: twice as many requests wait
twice as long.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvsim.results.recorder import SERIES_COLUMNS, Recorder

LEAST_OVERLOAD = 0.05
SIGMAS = 2.0
_START, _WAITING = SERIES_COLUMNS.index("start_ps"), SERIES_COLUMNS.index("num_waiting")


class Saturation(NamedTuple):
    """saturated: as above. overload: the share of the second half's arrivals by which the queue
    grew, 0 where it did not; at overload x the engine serves 1 - x of what arrives.
    """

    saturated: bool
    overload: float


def judge(recorder: Recorder) -> Saturation:
    """The judgement of what a finished run wrote down; refused requests do not count."""
    arrivals = np.sort(np.array([seq.arrival_ps for seq in recorder.finished], dtype=np.int64))
    if not len(arrivals):
        return Saturation(False, 0.0)
    rows = np.frombuffer(recorder.series, dtype=np.int64).reshape(-1, len(SERIES_COLUMNS))
    starts, waiting = rows[:, _START], rows[:, _WAITING]
    first, last = int(arrivals[0]), int(arrivals[-1])
    middle = first + (last - first) // 2
    after = _at(starts, last)
    if first == last:  # a burst: there is no rate to keep up with, only more than could start
        num, grown, least = len(arrivals), int(waiting.max()), int(waiting[after])
    else:
        before = _at(starts, middle)
        num = int((arrivals > middle).sum())
        grown = int(waiting[after] - waiting[before])
        least = int(waiting[before : after + 1].min())
    overload = max(0.0, grown / num)
    piled_up = overload > LEAST_OVERLOAD and grown > SIGMAS * num**0.5
    return Saturation(bool(piled_up and least > 0), overload)


def _at(starts: npt.NDArray[np.int64], when_ps: int) -> int:
    """The stretch of equal steps that `when_ps` falls in."""
    return max(0, int(np.searchsorted(starts, when_ps, side="right")) - 1)
