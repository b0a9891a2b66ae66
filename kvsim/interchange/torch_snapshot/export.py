"""Export a simulated run as torch's memory snapshot: the arena at one time, and the events before
it.
"""

from pathlib import Path

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.interchange.exports.export import HELD
from kvsim.interchange.torch_snapshot.recorder import SnapshotRecorder
from kvsim.memory.arena.placement import Arena
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S, PS_PER_US
from kvsim.results.result import Run
from kvsim.simulation import Simulation


def write_torch_snapshot(
    simulation: Simulation, label: str, path: Path, at_s: float | None = None
) -> float:
    """Write the memory of the allocator `label` at `at_s` seconds of simulated time; None: when
    most memory was allocated.

    Returns that time in seconds. InputError for an allocator without addresses: torch would see its
    pool as a single allocation.
    """
    options, _ = simulation.chosen(label)
    at_ps = _fullest(simulation.run(options, label)) if at_s is None else round(at_s * PS_PER_S)
    camera = _Camera(at_ps, path, label)
    simulation.run(options, label, observer=camera)
    camera.take()
    return at_ps / PS_PER_S


def _fullest(run: Run) -> int:
    """The first time in ps at which most bytes were allocated."""
    series = run.memory
    if series.empty:
        return 0
    held = series[[f"{name}_bytes" for name in HELD]].sum(axis="columns")
    return int(series["start_ps"].iloc[int(held.to_numpy().argmax())])


class _Camera(Observer):
    """Observer that takes one snapshot of a run's arena, before the first step after `at_ps`."""

    def __init__(self, at_ps: int, path: Path, label: str) -> None:
        self._at_ps = at_ps
        self._path = path
        self._label = label
        self._recorder: SnapshotRecorder | None = None
        self._taken = False

    def take(self) -> None:
        """Take the snapshot now, unless it was already taken."""
        if not self._taken and self._recorder is not None:
            self._taken = True
            self._recorder.write(self._path)

    def _listening(self, scheduler: Scheduler) -> SnapshotRecorder:
        if self._recorder is None:
            arena = getattr(scheduler.allocator, "arena", None)
            if not isinstance(arena, Arena):
                raise InputError(
                    "to torch its pool is one allocation: there is nothing to show",
                    where=f"allocator {self._label}",
                    remedy="choose one that places buffers: max-buffer, doubling, concatenation",
                )
            self._recorder = SnapshotRecorder(arena)
        return self._recorder

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        self._listening(scheduler).time_us = now_ps // PS_PER_US

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        if now_ps >= self._at_ps:
            self.take()

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        self._listening(scheduler).time_us = now_ps // PS_PER_US
