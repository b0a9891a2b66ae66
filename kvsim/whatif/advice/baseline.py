"""The baseline of an advice: the bottleneck of the unchanged scenario, and the load or the pool
size at which another one takes over.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from kvsim.whatif.intervals import Ratio
from kvsim.whatif.runner import Row
from kvsim.whatif.watch import SUBSTANTIAL, QueueWaits

Binding = Literal["memory", "limit", "step", "adapters", "encoder", "loads"]


class LoadReading(NamedTuple):
    """The load of the runs of one setting. runs, saturated: how many runs, and how many of them are
    saturated. requests, preemptions: in all runs. peak: the largest share of the pool that was ever
    allocated. waits: means over the runs.
    """

    runs: int
    saturated: int
    requests: int
    preemptions: int
    peak: float
    waits: QueueWaits

    @property
    def waits_for_memory(self) -> float:
        """The share of waits for room in the pool, in one place or at all."""
        return self.waits.memory + self.waits.holes

    @property
    def binds(self) -> Binding | None:
        """The resource that requests wait a twentieth of their time for, the largest share of them;
        memory also where one request in twenty is preempted. None: nothing binds.
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
        """Whether the end of the pool was ever reached."""
        return self.preemptions > 0 or self.waits_for_memory > 0

    @property
    def keeps_up(self) -> bool:
        """Whether at most half of the runs are saturated."""
        return 2 * self.saturated <= self.runs


def load_of(rows: Sequence[Row]) -> LoadReading:
    """The load of rows with recorded waits, one row a run."""
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
    """The load at which something begins to bind. factor: the largest multiple of today's rate at
    which nothing binds. bound_at: the smallest at which something does. rate_per_s: requests a
    second at `bound_at`, the mean over the runs. beyond: the load there; None where nothing binds
    at any multiple tried.
    """

    factor: float
    bound_at: float
    rate_per_s: float
    beyond: LoadReading | None


class LeastPool(NamedTuple):
    """The smallest pool with which the goal is worse by a hundredth at most. tokens: its size.
    lost_tokens: the largest tried that does worse. of: tokens of the pool that it is compared with.
    utilization: the gpu_memory_utilization that leaves it; None where another key sizes the pool.
    held_out: the goal with it, on replicates that its search has not seen.
    """

    tokens: int
    lost_tokens: int | None
    of: int
    utilization: float | None
    held_out: Ratio | None


class Baseline(NamedTuple):
    """The scenario as it is. load: on the replicates of the search. again: on replicates that
    nothing else has seen. twice: the goal with twice the pool and nothing else, on those; None
    where it cannot be compared. headroom: where nothing binds and the arrivals have a rate. pool:
    None where any smaller pool does worse.
    """

    load: LoadReading
    again: LoadReading
    twice: Ratio | None
    headroom: Headroom | None
    pool: LeastPool | None
