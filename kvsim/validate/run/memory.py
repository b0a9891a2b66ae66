"""Difference of KV pool usage over time between recording and simulation."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.units import PS_PER_S
from kvsim.validate.run.replay import Held


class MemoryErrors(NamedTuple):
    """Errors of KV pool usage, as fractions of the pool.

    mean_absolute and largest are of the difference at equal times. The other fields are the mean
    and the peak of each side.
    """

    mean_absolute: float
    largest: float
    recorded_mean: float
    simulated_mean: float
    recorded_peak: float
    simulated_peak: float


def recorded_held(run: ObservedRun) -> list[Held]:
    """Recorded pool usage at the start and end of every step; the run must have steps."""
    assert run.steps is not None
    allocator = run.meta.replica_spec().build().allocator
    usable = allocator.capacity_bytes - allocator.usage(None, busy=False).metadata
    held = []
    for step in run.steps:
        held.append(Held(round(step.start_s * PS_PER_S), step.allocated_bytes / usable))
        held.append(Held(round(step.end_s * PS_PER_S), step.after_allocated_bytes / usable))
    return held


def memory_errors(recorded: list[Held], simulated: tuple[Held, ...]) -> MemoryErrors:
    """Compare two step functions of time by exact integrals; usage is 0 before the first entry."""
    times = np.unique([moment.time_ps for moment in (*recorded, *simulated)])
    lengths = np.diff(times)
    before, after = (_at(moments, times) for moments in (recorded, simulated))
    apart = np.abs(after - before)
    span = float(lengths.sum())
    return MemoryErrors(
        mean_absolute=float((apart[:-1] * lengths).sum() / span),
        largest=float(apart.max()),
        recorded_mean=float((before[:-1] * lengths).sum() / span),
        simulated_mean=float((after[:-1] * lengths).sum() / span),
        recorded_peak=float(before.max()),
        simulated_peak=float(after.max()),
    )


def _at(moments: Sequence[Held], times: NDArray[np.int64]) -> NDArray[np.float64]:
    """Value of the step function at each time; of several entries at one time the last counts."""
    begun = np.array([moment.time_ps for moment in moments])
    usage = np.array([0.0, *(moment.usage for moment in moments)])
    return usage[np.searchsorted(begun, times, side="right")]
