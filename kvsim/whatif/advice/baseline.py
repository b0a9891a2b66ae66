"""How a scenario stands before anything is changed: what holds its requests back, and how far from
it what holds nobody back is.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from kvsim.whatif.intervals import Ratio
from kvsim.whatif.runner import Row
from kvsim.whatif.watch import SUBSTANTIAL, QueueWaits

Binding = Literal["memory", "limit", "step"]


class LoadReading(NamedTuple):
    """Of runs of one setting. peak: the largest share of the pool that was ever handed out; waits:
    means over the runs, as shares of the time that requests spent; requests, preemptions: of all
    runs; saturated: in how many of them.
    """

    runs: int
    saturated: int
    requests: int
    preemptions: int
    peak: float
    waits: QueueWaits

    @property
    def waits_for_memory(self) -> float:
        """For room in the pool, in one place or at all."""
        return self.waits.memory + self.waits.holes

    @property
    def binds(self) -> Binding | None:
        """What requests wait a twentieth of their time for, the most of it first; memory also where
        one in twenty is thrown out of it. None: nothing.
        """
        shares: dict[Binding, float] = {
            "memory": self.waits_for_memory,
            "limit": self.waits.limit,
            "step": self.waits.step,
        }
        most = max(shares, key=lambda name: shares[name])
        if shares[most] >= SUBSTANTIAL:
            return most
        return "memory" if self.preemptions >= SUBSTANTIAL * max(1, self.requests) else None

    @property
    def touches_memory(self) -> bool:
        """Whether the end of the pool was ever met."""
        return self.preemptions > 0 or self.waits_for_memory > 0

    @property
    def keeps_up(self) -> bool:
        """Whether no more than half of the runs are saturated."""
        return 2 * self.saturated <= self.runs


def load_of(rows: Sequence[Row]) -> LoadReading:
    """Rows of tasks that were asked for their waits, one a run."""
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
    """How many times today's rate nothing binds at, and the least times at which something does.
    rate_per_s: what that comes to, the mean over the runs. beyond: how it stands there. None: as
    far as was looked nothing binds.
    """

    factor: float
    bound_at: float
    rate_per_s: float
    beyond: LoadReading | None


class LeastPool(NamedTuple):
    """The smallest pool, in tokens, with which the goal is no worse than by a hundredth, and the
    largest tried with which it is. of: the pool that it is compared with. utilization: the
    gpu_memory_utilization that leaves it (None: the pool is not sized by it). told: the goal with
    it, on replicates that its search has not seen.
    """

    tokens: int
    lost_tokens: int | None
    of: int
    utilization: float | None
    told: Ratio | None


class Baseline(NamedTuple):
    """load: in the search; again: on replicates that nothing else has seen. twice: the goal with
    twice the pool and nothing else, on those (None: it cannot be compared). headroom: only where
    nothing binds, and the arrivals have a rate. pool: None where less of it does worse.
    """

    load: LoadReading
    again: LoadReading
    twice: Ratio | None
    headroom: Headroom | None
    pool: LeastPool | None
