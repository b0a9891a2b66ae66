"""Measure a part of a run: a window of time, given by the user or found to be steady.

A run that starts empty and drains at its end has means that depend on how long it was. The numbers
of a window are added to those of the whole run, and never replace them.
"""

from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from kvsim.memory.ledger import CLASSES
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import PS_PER_S
from kvsim.results.departures import Departures
from kvsim.results.recorder import Recorder
from kvsim.results.series import SERIES_COLUMNS
from kvsim.results.steady import fed_until, find_steady
from kvsim.results.summary import ClassShares, NoWindow, WindowMemory, WindowSummary

RUNNING = SERIES_COLUMNS.index("num_running")
MIN_REQUESTS = 100  # to look for a steady part of
# A queue grew if it was longer in each quarter of the arrivals than in the one before, and so many
# of the requests, and this share of them, had not been started when the last one came.
GROWN_SHARE = 0.05
GROWN_REQUESTS = 10


class WindowOptions(Options):
    """The window of a run to measure in addition to the whole, in seconds from the first arrival.

    from_s, to_s: its edges; without either, the steady part of each run is searched.
    """

    from_s: float | None = Field(default=None, ge=0)
    to_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if self.to_s is not None and self.to_s <= (self.from_s or 0.0):
            raise ValueError(f"to_s = {self.to_s:g} is not after from_s = {self.from_s or 0.0:g}")
        return self


def measure_window(recorder: Recorder, options: WindowOptions) -> WindowSummary | NoWindow:
    """Measure the window of a run, or give the reason why there is none.

    Its edges move inwards to moments at which a sequence came or left, so that its means are exact.
    Of several replicas, the ledger of each goes from the last such moment of its own to another.
    Requests count by their arrival for latencies and by their end for rates; waiting_mean counts
    those that no step has taken in yet.
    """
    done = Departures.of(recorder)
    origin = max(recorder.first_arrival_ps, 0)
    if options.from_s is not None or options.to_s is not None:
        found, reason = "given", None
        start = origin + round((options.from_s or 0.0) * PS_PER_S)
        end = recorder.end_ps if options.to_s is None else origin + round(options.to_s * PS_PER_S)
    elif len(done.arrival_ps) < MIN_REQUESTS:
        found, reason = "", f"fewer than {MIN_REQUESTS} requests were served"
        start = end = 0
    else:
        times, running = _marks(recorder)
        until_ps = fed_until(recorder.finished, done.finish_ps)
        start, end, reason = find_steady(times, running, int(done.arrival_ps.min()), until_ps)
        found = "steady"
    if reason is not None:
        return NoWindow(reason=reason)
    measured = _measured(recorder, done, found, start, end, origin)
    return measured or NoWindow(reason="nothing came or left between its edges")


def _measured(
    recorder: Recorder, done: Departures, found: str, start_ps: int, end_ps: int, origin_ps: int
) -> WindowSummary | None:
    """The numbers between the outermost marks within start_ps <= t <= end_ps; None if there are no
    two marks at different times.
    """
    times, running = _marks(recorder)
    low = int(np.searchsorted(times, start_ps))
    high = int(np.searchsorted(times, end_ps, side="right")) - 1
    if high <= low or times[high] == times[low]:
        return None
    start, end = int(times[low]), int(times[high])
    span_ps = end - start
    left = (done.finish_ps >= start) & (done.finish_ps <= end)
    came = (done.arrival_ps >= start) & (done.arrival_ps <= end)
    waited = np.clip(done.scheduled_ps, start, end) - np.clip(done.arrival_ps, start, end)
    held = np.diff(times[low : high + 1]) * running[low:high].astype(np.float64)
    (first, booked), (last, all_booked) = _sums(recorder, low), _sums(recorder, high)
    shares = (last - first) / (all_booked - booked)
    latencies = done.only(came).latencies()
    return WindowSummary(
        found=found,
        start_s=(start - origin_ps) / PS_PER_S,
        end_s=(end - origin_ps) / PS_PER_S,
        requests=int(came.sum()),
        requests_per_s=int(left.sum()) * PS_PER_S / span_ps,
        output_tokens_per_s=int(done.output_tokens[left].sum()) * PS_PER_S / span_ps,
        running_mean=float(held.sum()) / span_ps,
        waiting_mean=float(waited.astype(np.float64).sum()) / span_ps,
        ttft_s=latencies.ttft_s,
        tpot_s=latencies.tpot_s,
        e2e_s=latencies.e2e_s,
        memory=WindowMemory(
            time_mean=ClassShares(**dict(zip(CLASSES, shares.tolist(), strict=True)))
        ),
    )


def _marks(recorder: Recorder) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(times (n + 1,) of the marks and of the end, running sequences between each two (n,))."""
    rows = recorder.rows()
    marked = np.frombuffer(recorder.marks, dtype=np.int64)
    marked = marked[rows[marked, 0] <= recorder.end_ps]
    return np.append(rows[marked, 0], recorder.end_ps), rows[marked, RUNNING]


def _sums(recorder: Recorder, mark: int) -> tuple[NDArray[np.float64], int]:
    """(bytes * ps of each class up to a mark or the end, bytes of the pool * ps)."""
    if mark < len(recorder.marks):
        row = recorder.marks[mark]
        sums, whole = recorder.time_sum_before(row), recorder.pool_sum_before(row)
    else:
        sums, whole = recorder.time_sum, recorder.capacity_bytes * recorder.total_ps
    return np.array([float(total) for total in sums]), whole


def queue_grew(recorder: Recorder) -> tuple[int, int] | None:
    """(requests not started when the last one arrived, all requests) if the queue grew until the
    last arrival; else None.

    In such a run the waits depend on the length of the workload. Requests that all arrive at once
    form a queue from the start, which does not grow.
    """
    done = Departures.of(recorder)
    if not len(done.arrival_ps):
        return None
    return _grown(done, int(done.arrival_ps.min()), int(done.arrival_ps.max()))


def queue_grew_within(recorder: Recorder, window: WindowSummary) -> tuple[int, int] | None:
    """(requests waiting at the window's end, requests that arrived in it) if the queue grew
    throughout the window; else None.
    """
    origin = max(recorder.first_arrival_ps, 0)
    first, last = (origin + round(edge * PS_PER_S) for edge in (window.start_s, window.end_s))
    return _grown(Departures.of(recorder), first, last)


def _grown(done: Departures, first: int, last: int) -> tuple[int, int] | None:
    came = done.arrival_ps <= last
    left = int((came & (done.scheduled_ps > last)).sum())
    n = int((came & (done.arrival_ps >= first)).sum())
    if first == last or left < max(GROWN_REQUESTS, GROWN_SHARE * n):
        return None
    edges = np.linspace(first, last, 5)
    arrivals = np.sort(done.arrival_ps)
    starts = np.sort(done.scheduled_ps)
    waited = [
        _area(arrivals, low, high) - _area(starts, low, high) for low, high in pairwise(edges)
    ]
    grew = all(now > before for before, now in pairwise(waited))
    return (left, n) if grew else None


def _area(moments: NDArray[np.int64], low: float, high: float) -> float:
    """The integral over low <= t <= high of the number of `moments` before t."""
    return float((high - np.clip(moments, low, high)).sum())
