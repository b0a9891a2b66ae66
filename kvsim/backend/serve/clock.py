"""Clocks of a run in real time, in integer picoseconds since they were made."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_NS, PS_PER_S


class RunClock(ABC):
    """A clock of a run. name: its name in the run's file. tick_ns: function that reads the time in
    ns.
    """

    name: str
    tick_ns: Callable[[], int]

    def __init__(self) -> None:
        self._origin_ns = self.tick_ns()

    def now_ps(self) -> int:
        """Time in ps since the clock was made."""
        return (self.tick_ns() - self._origin_ns) * PS_PER_NS

    @abstractmethod
    def wait_until(self, then_ps: int) -> None:
        """Sleep until `then_ps`."""

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """A context in which the clock is stopped."""
        begin_ns = self.tick_ns()
        yield
        self._origin_ns += self.tick_ns() - begin_ns


class WallClock(RunClock):
    """Wall-clock time; waiting sleeps."""

    name = "wall clock"
    tick_ns = staticmethod(time.perf_counter_ns)

    def wait_until(self, then_ps: int) -> None:
        while (left_ps := then_ps - self.now_ps()) > 0:
            time.sleep(left_ps / PS_PER_S)


class CpuTimeClock(RunClock):
    """The time this thread has had on a core; waiting takes no time.

    On a shared machine it advances as a wall clock would on a dedicated core. With one torch thread
    all of a CPU run's work is in this thread.
    """

    name = "thread CPU time, without waiting"
    tick_ns = staticmethod(time.thread_time_ns)
    _skipped_ps = 0

    def now_ps(self) -> int:
        return super().now_ps() + self._skipped_ps

    def wait_until(self, then_ps: int) -> None:
        self._skipped_ps += max(0, then_ps - self.now_ps())


def run_clock(kind: str, device: str) -> type[WallClock] | type[CpuTimeClock]:
    """The class of the clock "wall" or "cpu", to instantiate when the run begins; InputError for
    "cpu" on a GPU, or another name.
    """
    if kind == "wall":
        return WallClock
    if kind == "cpu" and device == "cpu":
        return CpuTimeClock
    raise InputError(
        "no such clock",
        where="--clock",
        value=kind,
        remedy="wall, or cpu where --device is cpu",
    )
