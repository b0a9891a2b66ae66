"""Means over the steps that start within a window of time, exact at both ends."""

from kvsim.memory.ledger import CLASSES, Course, Usage
from kvsim.memory.parts import NO_PARTS, Parts
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ratio
from kvsim.results.recorder import Recorder
from kvsim.results.series import SERIES_COLUMNS


class WindowRecorder(Recorder):
    """A recorder that also sums over the steps in a window of time.

    start_ps, end_ps: ends of the window. A step counts with weight one if it starts at start_ps <=
    t <= end_ps. A run of several steps must not cross an end: the caller cuts it there
    (`Engine.cut`).

    window_steps: number of steps that count. window_rows: rows of the series, from the first to the
    last. window_running: sum of running sequences over the steps.
    """

    def __init__(self, capacity_bytes: int, start_ps: int, end_ps: int) -> None:
        super().__init__(capacity_bytes)
        self.start_ps, self.last_ps = start_ps, end_ps
        self.window_steps = 0
        self.window_running = 0
        self.window_rows = 0, 0

    @property
    def closed(self) -> bool:
        """Whether every step of the window has been recorded."""
        return self.booked_ps > self.last_ps

    @property
    def booked_ps(self) -> int:
        """End time of the steps recorded so far."""
        return self.series[-len(SERIES_COLUMNS) + 1] if self.series else 0

    def interval(
        self,
        start_ps: int,
        steps: int,
        first_ps: int,
        growth_ps: int,
        usage: Usage,
        course: Course | None,
        num_running: int,
        num_waiting: int,
        saved_bytes: int = 0,
        parts: Parts = NO_PARTS,
    ) -> None:
        last = start_ps + first_ps * (steps - 1) + growth_ps * ((steps - 1) * (steps - 2) // 2)
        inside = self.start_ps <= start_ps <= self.last_ps
        if start_ps < self.start_ps <= last or start_ps <= self.last_ps < last:
            raise InvariantError("a run of steps crosses the edge of a window")
        row = self.num_rows
        super().interval(
            start_ps,
            steps,
            first_ps,
            growth_ps,
            usage,
            course,
            num_running,
            num_waiting,
            saved_bytes,
            parts,
        )
        if inside:
            self.window_steps += steps
            self.window_running += num_running * steps
            first = self.window_rows[0] if self.window_rows[1] else row
            self.window_rows = first, self.num_rows

    def shares(self) -> dict[str, float]:
        """Mean share of the capacity by ledger class, over the window's steps (at least one)."""
        whole = self.capacity_bytes * self.window_steps
        begun, ended = map(self.step_sum_before, self.window_rows)
        sums = [end - begin for begin, end in zip(begun, ended, strict=True)]
        return {name: ratio(total, whole) for name, total in zip(CLASSES, sums, strict=True)}

    def running_mean(self) -> float:
        """Mean number of running sequences over the window's steps (at least one)."""
        return ratio(self.window_running, self.window_steps)
