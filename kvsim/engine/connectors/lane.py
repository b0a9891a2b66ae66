"""One direction of a link: copies run one after the other, in order of submission."""

from collections import deque
from typing import NamedTuple

from kvsim.engine.copy_log import CopyLog
from kvsim.plumbing.units import PS_PER_S, ceil_div


class LaneCopy(NamedTuple):
    """A submitted copy. job: number of its copy job. start_ps, end_ps: when it moves."""

    job: int
    start_ps: int
    end_ps: int


class Lane:
    """One direction of a link, or one of several queues that share nothing.

    latency_ps: time before each copy moves. bytes_per_s: rate while it moves. tick_ps: durations
    are rounded up to whole ticks. queued: a copy waits for the one before it; else all run
    concurrently at full speed. num_bytes: bytes copied so far. busy_ps: sum of durations so far.
    log: each copy.
    """

    def __init__(
        self, latency_ps: int, bytes_per_s: int, tick_ps: int = 1, *, queued: bool = True
    ) -> None:
        self._latency_ps, self._bytes_per_s, self._tick_ps = latency_ps, bytes_per_s, tick_ps
        self._queued = queued
        self._free_ps = 0
        self._copies: deque[LaneCopy] = deque()
        self.num_bytes = self.busy_ps = 0
        self.log = CopyLog()

    def __len__(self) -> int:
        return len(self._copies)

    def duration_ps(self, num_bytes: int) -> int:
        """Duration in ps of a copy of `num_bytes`, without queueing."""
        tick_ps = self._tick_ps
        ticks = ceil_div(num_bytes * PS_PER_S, self._bytes_per_s * tick_ps)
        return self._latency_ps + ticks * tick_ps

    def submit(self, job: int, num_bytes: int, at_ps: int, *, piece: bool = False) -> LaneCopy:
        """Queue a copy that may start at at_ps, after those submitted before it.

        piece: it is the next part of the last copy.
        """
        start_ps = max(at_ps, self._free_ps) if self._queued else at_ps
        duration_ps = self.duration_ps(num_bytes)
        copy = LaneCopy(job, start_ps, start_ps + duration_ps)
        self._free_ps = max(self._free_ps, copy.end_ps)
        self.num_bytes += num_bytes
        self.busy_ps += duration_ps
        self._copies.append(copy)
        self.log.add(at_ps, start_ps, copy.end_ps, num_bytes, piece=piece)
        return copy

    def end_ps(self, job: int) -> int:
        """End in ps of the copy of `job`; 0 if there is none, or a poll has reported it."""
        return next((copy.end_ps for copy in self._copies if copy.job == job), 0)

    @property
    def last_ps(self) -> int:
        """Time in ps at which all copies submitted so far have ended."""
        return self._free_ps

    def ended(self, now_ps: int) -> list[int]:
        """The jobs of copies at the head of the queue that have ended by now_ps."""
        found: list[int] = []
        while self._copies and self._copies[0].end_ps <= now_ps:
            found.append(self._copies.popleft().job)
        return found
