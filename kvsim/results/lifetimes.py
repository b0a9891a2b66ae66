"""Lifetimes of a fleet's replicas: how they start, fail and are removed."""

from dataclasses import dataclass
from typing import NamedTuple

from kvsim.plumbing.units import PS_PER_S
from kvsim.results.summary_part import Count, Measured, SummaryPart


class Lifetime(NamedTuple):
    """The lifetime of one replica. begin_ps: when its start began, from which its GPUs count.
    ready_ps: when it first took requests; None: never. end_ps, ended: when and how it ended
    ("died", "removed"); None: not before the last request. like: number of the initial replica with
    the same options.
    """

    like: int
    begin_ps: int = 0
    ready_ps: int | None = 0
    end_ps: int | None = None
    ended: str | None = None

    def ps(self, begin_ps: int, end_ps: int, *, ready: bool = False) -> int:
        """Time in ps that the replica existed (ready: took requests) between two times."""
        first = self.ready_ps if ready else self.begin_ps
        if first is None:
            return 0
        last = end_ps if self.end_ps is None else min(self.end_ps, end_ps)
        return max(0, last - max(first, begin_ps))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReplicaLife(SummaryPart):
    """The lifetime of one replica, in seconds from the start of the simulation."""

    started_s: Measured
    ready_s: Measured | None = None
    ended_s: Measured | None = None
    ended: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FleetChangesSummary(SummaryPart):
    """How the replicas of a fleet changed.

    replicas_mean, replicas_peak: number of replicas that took requests, over the fleet's makespan.
    moved_requests: how often a request was sent to another replica because its own failed. lives:
    lifetimes of all replicas by number, followed by replicas with a cancelled start.
    """

    replicas_mean: Measured
    replicas_peak: Count
    moved_requests: Count
    lives: tuple[ReplicaLife, ...]


def changes_of(
    lives: list[Lifetime], num_moved: int, begin_ps: int, end_ps: int
) -> FleetChangesSummary:
    """The summary of these lifetimes, between the fleet's first arrival and its end."""
    whole_ps = end_ps - begin_ps
    ready_ps = sum(each.ps(begin_ps, end_ps, ready=True) for each in lives)
    moments = []
    for each in lives:
        if each.ready_ps is not None and each.ready_ps <= end_ps:
            moments.append((each.ready_ps, 1))
            if each.end_ps is not None:
                moments.append((each.end_ps, -1))
    peak = there = 0
    for _, change in sorted(moments):  # at one time, ends come first
        there += change
        peak = max(peak, there)
    return FleetChangesSummary(
        replicas_mean=ready_ps / whole_ps if whole_ps else 0.0,
        replicas_peak=peak,
        moved_requests=num_moved,
        lives=tuple(
            ReplicaLife(
                started_s=each.begin_ps / PS_PER_S,
                ready_s=None if each.ready_ps is None else each.ready_ps / PS_PER_S,
                ended_s=None if each.end_ps is None else each.end_ps / PS_PER_S,
                ended=each.ended,
            )
            for each in lives
        ),
    )
