"""The baseline of an advice: the bottleneck of the unchanged scenario, and the load or pool size at
which the bottleneck changes.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from kvsim.whatif.intervals import Ratio
from kvsim.whatif.runner import Row
from kvsim.whatif.watch import SUBSTANTIAL, QueueWaits

Binding = Literal["memory", "limit", "step", "adapters", "encoder", "loads"]


class LoadReading(NamedTuple):
    """The load in the runs of one setting. runs, saturated: number of runs, and of saturated ones.
    requests, preemptions: totals over all runs. peak: the largest share of the pool ever allocated.
    waits: mean share of each cause of waiting.
    """

    runs: int
    saturated: int
    requests: int
    preemptions: int
    peak: float
    waits: QueueWaits

    @property
    def waits_for_memory(self) -> float:
        """The share of requests' time spent waiting for room in the pool, fragmentation
        included.
        """
        return self.waits.memory + self.waits.holes

    @property
    def binds(self) -> Binding | None:
        """The bottleneck: the resource that requests wait for the longest, at least a twentieth of
        their time. It is also memory if one request in twenty is preempted. None: no bottleneck.
        """
        shares: dict[Binding, float] = {
            "memory": self.waits_for_memory,
            "limit": self.waits.limit,
            "step": self.waits.step,
            "adapters": self.waits.adapters,
            "encoder": self.waits.encoder,
            "loads": self.waits.loads,
        }
        most = max(shares, key=lambda name: shares[name])
        if shares[most] >= SUBSTANTIAL:
            return most
        return "memory" if self.preemptions >= SUBSTANTIAL * max(1, self.requests) else None

    @property
    def touches_memory(self) -> bool:
        """Whether the pool was ever full."""
        return self.preemptions > 0 or self.waits_for_memory > 0

    @property
    def keeps_up(self) -> bool:
        """Whether at most half of the runs are saturated."""
        return 2 * self.saturated <= self.runs


def load_of(rows: Sequence[Row]) -> LoadReading:
    """The load in rows of runs that recorded causes of waiting, one row for each run."""
    waits = [[float(row[f"waits.{name}"]) for row in rows] for name in QueueWaits._fields]
    return LoadReading(
        len(rows),
        sum(bool(row["saturated"]) for row in rows),
        sum(int(row["requests.submitted"]) for row in rows),
        sum(int(row["preemptions"]) for row in rows),
        max(float(row["memory.peak_allocated"]) for row in rows),
        QueueWaits(*map(fmean, waits)),
    )


class Headroom(NamedTuple):
    """The load at which a bottleneck appears. factor: the largest multiple of today's rate without
    a bottleneck. bound_at: the smallest multiple with one. rate_per_s: mean requests a second at
    `bound_at`. beyond: the load there; None if no multiple tried has a bottleneck.
    """

    factor: float
    bound_at: float
    rate_per_s: float
    beyond: LoadReading | None


class LeastPool(NamedTuple):
    """The smallest pool that worsens the goal by at most a hundredth. tokens: its size.
    lost_tokens: the largest size tried that does worse. of: tokens of the pool it is compared with.
    utilization: the gpu_memory_utilization that gives this size; None if another key sizes the
    pool. held_out: the goal with this size, on replicates that the search has not seen.
    """

    tokens: int
    lost_tokens: int | None
    of: int
    utilization: float | None
    held_out: Ratio | None


class Baseline(NamedTuple):
    """The unchanged scenario. load: on the replicates of the search. again: on fresh replicates.
    twice: the goal with twice the pool and no other change, on fresh replicates; None if it cannot
    be compared. headroom: if there is no bottleneck and the arrivals have a rate. pool: None if any
    smaller pool does worse.
    """

    load: LoadReading
    again: LoadReading
    twice: Ratio | None
    headroom: Headroom | None
    pool: LeastPool | None
