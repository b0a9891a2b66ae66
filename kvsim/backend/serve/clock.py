"""Clocks of a run in real time, in integer picoseconds since they were made."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_NS, PS_PER_S


class RunClock(Protocol):
    """name: for the file."""

    name: str

    def now_ps(self) -> int:
        """The time since the clock was made."""
        ...

    def wait_until(self, then_ps: int) -> None:
        """Nothing is to be done before `then_ps`."""
        ...

    def stopped(self) -> AbstractContextManager[None]:
        """It stands still inside: what is done there is no part of the run."""
        ...


class WallClock:
    """The clock on the wall; waiting is sleeping."""

    name = "wall clock"

    def __init__(self) -> None:
        self._origin_ns = time.perf_counter_ns()

    def now_ps(self) -> int:
        """See `RunClock`."""
        return (time.perf_counter_ns() - self._origin_ns) * PS_PER_NS

    def wait_until(self, then_ps: int) -> None:
        """See `RunClock`."""
        while (left_ps := then_ps - self.now_ps()) > 0:
            time.sleep(left_ps / PS_PER_S)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """See `RunClock`."""
        begin_ns = time.perf_counter_ns()
        yield
        self._origin_ns += time.perf_counter_ns() - begin_ns


class CpuTimeClock:
    """The time this thread has had on a core; waiting is leapt over.

    On a machine that others use as well it goes on as the wall clock of a core of one's own would.
    With one torch thread all of a CPU run's work is in this thread.
    """

    name = "thread CPU time, waiting leapt over"

    def __init__(self) -> None:
        self._origin_ns = time.thread_time_ns()
        self._leapt_ps = 0

    def now_ps(self) -> int:
        """See `RunClock`."""
        return (time.thread_time_ns() - self._origin_ns) * PS_PER_NS + self._leapt_ps

    def wait_until(self, then_ps: int) -> None:
        """See `RunClock`."""
        self._leapt_ps += max(0, then_ps - self.now_ps())

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """See `RunClock`."""
        begin_ns = time.thread_time_ns()
        yield
        self._origin_ns += time.thread_time_ns() - begin_ns


def run_clock(kind: str, device: str) -> type[WallClock] | type[CpuTimeClock]:
    """The clock "wall", or "cpu", to be made when the run begins; InputError where there is none
    such for this device.
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
