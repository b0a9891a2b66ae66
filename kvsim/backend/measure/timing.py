"""Clocks that can be trusted: thread CPU time on a CPU, events on a GPU."""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import torch


class Timing(NamedTuple):
    """Seconds of repeated runs: the statistic that is fitted, the least, the 90th percentile."""

    seconds: float
    min_s: float
    p90_s: float
    n: int


class StepClock(Protocol):
    """Times one piece of work by running it again and again."""

    name: str
    statistic: str
    warm_ups: int

    def time(self, work: Callable[[], object]) -> Timing:
        """Time `work`: warm up, then repeat."""
        ...


class CpuClock:
    """CPU time of this thread.

    The median is taken: a served run has steps under all conditions, and the least of many repeats
    is the luckiest.

    With one torch thread all work is in this thread. Repeats until `budget_s` is spent.
    """

    name = "thread CPU time"
    statistic = "median"
    warm_ups = 1

    def __init__(self, budget_s: float) -> None:
        self.budget_s = budget_s
        self.least, self.most = 3, 40

    def time(self, work: Callable[[], object]) -> Timing:
        """See `StepClock`."""
        for _ in range(self.warm_ups):
            work()
        found: list[float] = []
        while len(found) < self.least or (sum(found) < self.budget_s and len(found) < self.most):
            start = time.thread_time_ns()
            work()
            found.append((time.thread_time_ns() - start) * 1e-9)
        return _timing(found)


class CudaClock:
    """CUDA events around each run; the median."""

    name = "CUDA events"
    statistic = "median"
    warm_ups = 5

    def __init__(self, repeats: int = 20) -> None:
        self.repeats = repeats

    def time(self, work: Callable[[], object]) -> Timing:
        """See `StepClock`."""
        for _ in range(self.warm_ups):
            work()
        pairs = [(_event(), _event()) for _ in range(self.repeats)]
        for start, end in pairs:
            start.record()
            work()
            end.record()
        torch.cuda.synchronize()
        found = [start.elapsed_time(end) * 1e-3 for start, end in pairs]
        return _timing(found)


def clock_of(device: str, budget_s: float) -> StepClock:
    """The clock for a device. budget_s: how long a CPU repeats one piece of work."""
    return CudaClock() if device.startswith("cuda") else CpuClock(budget_s)


def _timing(found: list[float]) -> Timing:
    middle, late = float(np.median(found)), float(np.percentile(found, 90))
    return Timing(middle, min(found), late, len(found))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
