"""Times of finished sequences as arrays, and their latencies."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.units import PS_PER_S
from kvsim.results import latency
from kvsim.results.recorder import Recorder
from kvsim.results.summary import LatencySummary

Times = NDArray[np.int64]


class Departures(NamedTuple):
    """Times in ps of n finished sequences, (n,) each: arrival, first scheduling, first and last
    token; and their output tokens.
    """

    arrival_ps: Times
    scheduled_ps: Times
    first_token_ps: Times
    finish_ps: Times
    output_tokens: Times

    @classmethod
    def of(cls, recorder: Recorder) -> "Departures":
        """The departures in the records of `recorder`."""
        done = recorder.finished
        return cls(
            done.column("arrival_ps"),
            done.column("first_scheduled_ps"),
            done.column("first_token_ps"),
            np.frombuffer(recorder.finish_ps, dtype=np.int64),
            done.column("output_tokens"),
        )

    def only(self, chosen: NDArray[np.bool_]) -> "Departures":
        """The sequences for which `chosen` (n,) is true."""
        return Departures(*(column[chosen] for column in self))

    def latencies(self) -> "Latencies":
        """Mean and quantiles of each latency, as `kvsim.results.latency` defines it."""
        arrival, scheduled, first, finish, outputs = self
        answers = outputs > 0  # a prompt alone has no first token
        return Latencies(
            _summary(latency.ttft(arrival[answers], first[answers])),
            _summary(latency.tpot(first, finish, outputs)),
            _summary(latency.e2e(arrival, finish)),
            _summary(latency.queue(arrival, scheduled)),
        )


class Latencies(NamedTuple):
    """The latencies of finished sequences, in seconds."""

    ttft_s: LatencySummary
    tpot_s: LatencySummary
    e2e_s: LatencySummary
    queue_s: LatencySummary


def _summary(values_ps: NDArray[Any]) -> LatencySummary:
    return LatencySummary.of(latency.spread(values_ps / PS_PER_S) if len(values_ps) else {})


def within(done: Departures, limits_s: Mapping[str, float]) -> int:
    """Number of finished sequences within each limit. A sequence without a latency (a prompt alone
    has no TTFT, one token no TPOT) meets every limit of that latency.
    """
    arrival, scheduled, first, finish, outputs = done
    waits_ps: dict[str, NDArray[Any]] = {
        "queue_s": latency.queue(arrival, scheduled),
        "ttft_s": np.where(outputs > 0, latency.ttft(arrival, first), 0),
        "tpot_s": latency.mean_gap(first, finish, outputs),
        "e2e_s": latency.e2e(arrival, finish),
    }
    kept = np.ones(len(outputs), dtype=bool)
    for name, limit_s in limits_s.items():
        kept &= waits_ps[name] <= limit_s * PS_PER_S
    return int(kept.sum())
