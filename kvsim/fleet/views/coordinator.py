"""vLLM's data-parallel coordinator: which load reports of ranks it publishes, and when.

It stores the last report of each rank and publishes after a wait. A report that comes meanwhile is
taken and the wait starts again (`DPCoordinatorProc`, vLLM 0.33.0).
"""

from typing import NamedTuple

from kvsim.plumbing.units import PS_PER_S

QUIET_PS = 5 * PS_PER_S
SAME_STEP_PS = PS_PER_S // 20

Counts = tuple[tuple[int, int, float], ...]


class Publication(NamedTuple):
    """Counts sent to front ends: (waiting, running, usage) of each rank."""

    time_ps: int
    counts: Counts


class Coordinator:
    """Decides when load counts are published. publications: those made since the last `drain`.

    interval_ps: time between two publications, made only if something changed. lockstep: ranks step
    together, and a report of a newer step publishes the counts of the step before.
    """

    def __init__(self, ranks: int, interval_ps: int, *, lockstep: bool, start_ps: int = 0) -> None:
        self._counts: list[tuple[int, int, float]] = [(0, 0, 0.0)] * ranks
        self._interval_ps = interval_ps
        self._lockstep = lockstep
        self._changed = False
        self._kept: Counts | None = None
        self._step: tuple[int, int] = (-1, -1)
        self._published_ps = start_ps
        self._waits_since_ps = start_ps
        self._made = [Publication(start_ps, tuple(self._counts))]

    def heard(
        self, rank: int, counts: tuple[int, int, float], now_ps: int, step: tuple[int, int] = (0, 0)
    ) -> None:
        """A rank reports (waiting, running, usage). step: its wave and step number."""
        self.advance(now_ps, before=True)
        if self._lockstep and step > self._step:
            if self._changed:
                self._kept = tuple(self._counts)
            self._step = step
        self._counts[rank] = counts
        self._changed = True
        self._waits_since_ps = now_ps

    def joined(self) -> None:
        """Add a rank."""
        self._counts.append((0, 0, 0.0))

    @property
    def _due_ps(self) -> int:
        wait_ps = self._interval_ps if self._changed else QUIET_PS
        least_ps = SAME_STEP_PS if self._lockstep and self._kept is None else 0
        elapsed_ps = self._waits_since_ps - self._published_ps
        return self._waits_since_ps + max(least_ps, wait_ps - elapsed_ps)

    def advance(self, now_ps: int, *, before: bool = False) -> None:
        """Publish everything due by now_ps; before: only what was due strictly before now_ps."""
        while (due_ps := self._due_ps) < now_ps or (due_ps == now_ps and not before):
            if self._kept is not None:
                counts, self._kept = self._kept, None
            else:
                counts, self._changed = tuple(self._counts), False
            self._made.append(Publication(due_ps, counts))
            self._published_ps = self._waits_since_ps = due_ps

    def drain(self, now_ps: int | None) -> list[Publication]:
        """Return the publications up to now_ps (None: all made so far) that were not returned
        before.
        """
        if now_ps is not None:
            self.advance(now_ps)
        made, self._made = self._made, []
        return made
