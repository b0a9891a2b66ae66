"""Nonlinear least squares: the numbers of a form with which the simulation reproduces the recorded
first part.

Each miss is divided by its noise, which is unknown before a fit. So the search runs twice. The
first time all noises are equal. The second search starts from the first fit and uses its noises.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.validate.run.fitting.aims import Aims

Floats = NDArray[np.float64]


Numbers = tuple[float, ...]
_STEP = 0.02  # of a derivative: a fiftieth of a step's time, well above the jumps of a schedule
_EXACT = 2e-4
_MOST_STEPS = 8
_ROUNDS = 2  # of a drawn fit; each linearises the simulation
_NARROW = 1e-9  # standard deviation of a number that no step of the run needs


class FittedNumbers(NamedTuple):
    """Fitted numbers of a form, and the simulations from which their derivatives are computed.

    simulated has the amounts at the fit, one list per quantity. moved has the amounts with one
    number increased by `step`, for each number. lowest has the lower bounds. usual: standard
    deviations over servers, by which each number is drawn towards 0; None: the numbers are not
    drawn.
    """

    numbers: Numbers
    lowest: Numbers
    simulated: list[Floats]
    moved: list[list[Floats]]
    step: float = _STEP
    usual: Numbers | None = None

    def line(self, aims: Aims, weights: list[Floats]) -> tuple[Floats, Floats]:
        """Linearised misses over weighted entries: values [quantities] and slopes [quantities,
        numbers].
        """
        pairs = list(zip(aims.found, weights, strict=True))
        here = np.array(
            [aim.miss(own, w) for (aim, w), own in zip(pairs, self.simulated, strict=True)]
        )
        there = [
            [aim.miss(own, w) for (aim, w), own in zip(pairs, lists, strict=True)]
            for lists in self.moved
        ]
        return here, (np.array(there) - here).T / self.step

    def better(self, aims: Aims, weights: list[Floats], noise: Floats) -> Floats:
        """The change of the numbers that would minimise the misses over these weighted entries
        alone.
        """
        from scipy.optimize import lsq_linear

        misses, slopes = self.line(aims, weights)
        room = [min(0.0, low - at) for low, at in zip(self.lowest, self.numbers, strict=True)]
        bounds = (np.array(room) - 1e-9, np.full(len(room), np.inf))
        rows, wanted = slopes / noise[:, None], -misses / noise
        if self.usual is not None:
            spread = np.maximum(np.array(self.usual), _NARROW)
            rows = np.vstack([rows, np.diag(1 / spread)])
            wanted = np.concatenate([wanted, -np.array(self.numbers) / spread])
        found = lsq_linear(rows, wanted, bounds)
        moves: Floats = found.x
        return moves


def search(
    aims: Aims,
    simulate: Callable[[Numbers], list[Floats]],
    lowest: Numbers,
    starts: Sequence[Numbers],
) -> FittedNumbers:
    """Find the numbers, none below its bound in `lowest`, that minimise all misses together.

    simulate(numbers) returns the amounts, one list per quantity. starts are starting points; the
    best one is used.
    """
    from scipy.optimize import least_squares

    weights = list(aims.all_weights())

    def misses(numbers: Floats, noise: Floats) -> Floats:
        lists = simulate(tuple(numbers - 1.0))
        found = [aim.miss(own, w) for aim, own, w in zip(aims.found, lists, weights, strict=True)]
        return np.array(found) / noise

    # A relative step of the derivative needs numbers about 1.
    floor, noise = np.array(lowest) + 1.0, np.ones(len(aims.found))
    places = [np.maximum(np.array(each) + 1.0, floor) for each in starts]
    start = min(places, key=lambda place: float((misses(place, noise) ** 2).sum()))
    for _ in range(2):
        start = np.maximum(start, floor + 1e-6)
        solved = least_squares(
            misses,
            start,
            bounds=(floor, np.inf),
            diff_step=[_STEP] * len(lowest),
            xtol=_EXACT,
            ftol=_EXACT,
            max_nfev=_MOST_STEPS,
            args=(noise,),
        )
        start = solved.x
        noise = noises(aims, simulate(tuple(start - 1.0)))
    numbers = tuple(float(number) for number in start - 1.0)
    return FittedNumbers(numbers, lowest, simulate(numbers), _moved(simulate, numbers))


def drawn(
    aims: Aims,
    simulate: Callable[[Numbers], list[Floats]],
    lowest: Numbers,
    usual: Numbers,
) -> FittedNumbers:
    """The most likely numbers of a server, if its numbers are distributed around 0 with standard
    deviations `usual`.

    simulate and lowest are those of `search`.
    """
    weights = list(aims.all_weights())
    found = FittedNumbers((0.0,) * len(usual), lowest, simulate((0.0,) * len(usual)), [],
                          usual=usual)  # fmt: skip
    for _ in range(_ROUNDS):
        found = found._replace(moved=_moved(simulate, found.numbers))
        moves = found.better(aims, weights, noises(aims, found.simulated))
        numbers = tuple((np.array(found.numbers) + moves).tolist())
        found = found._replace(numbers=numbers, simulated=simulate(numbers))
    return found._replace(moved=_moved(simulate, found.numbers))


def _moved(simulate: Callable[[Numbers], list[Floats]], numbers: Numbers) -> list[list[Floats]]:
    """The amounts with one number increased by `_STEP`, for each number."""
    return [
        simulate((*numbers[:at], numbers[at] + _STEP, *numbers[at + 1 :]))
        for at in range(len(numbers))
    ]


def noises(aims: Aims, simulated: list[Floats]) -> Floats:
    """Standard error of each quantity's miss over all entries."""
    return np.array([aim.noise(own) for aim, own in zip(aims.found, simulated, strict=True)])
