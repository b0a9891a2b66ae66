"""Cross-validate each form within the first part: fit on two of three blocks, test on the third.

Blocks are consecutive in time. Near the fit the simulation is taken to be linear in its numbers, so
fits on other blocks need no further simulations.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.validate.run.fitting.aims import BLOCKS, Aims
from kvsim.validate.run.fitting.forms import free_numbers
from kvsim.validate.run.fitting.search import FittedNumbers, noises

Floats = NDArray[np.float64]


class Judged(NamedTuple):
    """A form's errors on held-out blocks.

    squares has (miss / noise)**2 of every quantity in every held-out block. held_out has the root
    mean square miss of each quantity.
    """

    form: str
    found: FittedNumbers
    squares: Floats
    held_out: dict[str, float]

    @property
    def score(self) -> float:
        """Mean of squares; at most 1 if only noise is left."""
        return float(self.squares.mean())

    def summary(self) -> dict[str, Any]:
        """The summary for `--json`."""
        return {"form": self.form, "score": self.score, "held_out": self.held_out}


def judge(found: dict[str, FittedNumbers], aims: Aims) -> list[Judged]:
    """Test each form on each block in turn.

    All forms are tested with one noise estimate: the lowest of all forms, since a bad fit inflates
    the noise.
    """
    noise = np.min([noises(aims, one.simulated) for one in found.values()], axis=0)
    return [_judged(form, one, aims, noise) for form, one in found.items()]


def _judged(form: str, found: FittedNumbers, aims: Aims, noise: Floats) -> Judged:
    misses, squares = [], []
    for block in range(BLOCKS):
        inside = [aim.block == block for aim in aims.found]
        moves = found.better(aims, [(~part).astype(float) for part in inside], noise)
        here, slopes = found.line(aims, [part.astype(float) for part in inside])
        miss = here + slopes @ moves
        misses.append(miss)
        squares.append(miss**2 / (BLOCKS * noise**2))  # of a block, which is one of so many
    size = np.sqrt(np.mean(np.square(misses), axis=0))
    names = [aim.name for aim in aims.found]
    return Judged(form, found, np.array(squares), dict(zip(names, size.tolist(), strict=True)))


def choose(judged: list[Judged]) -> Judged:
    """The form with the fewest numbers among those within one standard error of the best score."""
    best = min(judged, key=lambda one: one.score)
    spread = float(np.std(best.squares, ddof=1)) / best.squares.size**0.5
    enough = [one for one in judged if one.score <= best.score + spread]
    return min(enough, key=lambda one: (len(free_numbers(one.form)), one.score))
