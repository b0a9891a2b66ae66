"""The interface of an arrival process."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import PS_PER_S

LONGEST_S = 9.0e6  # about 104 days of picoseconds fit 64 bits


@dataclass(frozen=True, slots=True)
class Schedule:
    """The start times of `count` requests or conversations, in order.

    arrival_ps: start time of each in ps, never falling; for one that waits for an answer, the
    earliest possible time. after: for each, the index of the one that must be answered first, -1
    for none; None: none waits. think_ps: time in ps from that answer to the start; None with
    `after`.
    """

    arrival_ps: NDArray[np.int64]
    after: NDArray[np.int64] | None = None
    think_ps: NDArray[np.int64] | None = None


class ArrivalOptions(Options):
    """Options of one arrival process; the fields are the keys of `[workload.arrivals]` other than
    `kind`.
    """

    def schedule(self, count: int, rng: np.random.Generator) -> Schedule:
        """Starts of `count` requests or conversations; InputError past 104 days."""
        raise NotImplementedError(type(self).__name__)  # every registered process overrides this

    def notes(self, count: int) -> list[str]:
        """Notes for the user about the schedule of `count` starts."""
        return []


def ps(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Times in seconds as whole picoseconds; InputError if they do not fit 64 bits."""
    if len(seconds) and not seconds.max() <= LONGEST_S:
        raise InputError(
            "the workload lasts too long",
            where="workload.arrivals",
            value=f"{seconds.max():.3g} s",
            limit=f"{LONGEST_S:.3g} s",
            remedy="raise the rate or ask for fewer requests",
        )
    return np.rint(seconds * PS_PER_S).astype(np.int64)


def renewal(gaps_s: NDArray[np.float64]) -> Schedule:
    """Start times in seconds from gaps: the first at 0, each next one gaps_s[k] after the previous
    (the last gap is unused).
    """
    ps(gaps_s.sum(keepdims=True))
    starts = np.zeros(len(gaps_s), dtype=np.int64)
    np.cumsum(ps(gaps_s[:-1]), out=starts[1:])
    return Schedule(starts)


def inhomogeneous(
    boundaries_s: NDArray[np.float64],
    rates: NDArray[np.float64],
    count: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """The arrivals of a Poisson process of rate rates[i] (per second, >= 0) between
    boundaries_s[i] and boundaries_s[i + 1]; boundaries start at 0.

    At most `count`; fewer if the rate's integral ends before. By time change: unit-rate arrivals
    through the inverse of the integral.
    """
    integral = np.concatenate(([0.0], np.cumsum(np.diff(boundaries_s) * rates)))
    unit = np.cumsum(rng.standard_exponential(count))
    unit = unit[unit < integral[-1]]
    piece = np.searchsorted(integral, unit, side="right") - 1
    return np.asarray(boundaries_s[piece] + (unit - integral[piece]) / rates[piece])
