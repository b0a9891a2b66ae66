"""Each form judged inside the first part: fitted on two thirds of it, held to the other third.

The first part is cut into blocks by time. Near the fitted form its simulation moves in proportion
to its numbers. So other choices of requests need no more simulations.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.validate.run.fitting.aims import BLOCKS, Aims
from kvsim.validate.run.fitting.forms import FORMS
from kvsim.validate.run.fitting.search import FittedNumbers, noises

Floats = NDArray[np.float64]


class Judged(NamedTuple):
    """squares: (miss / noise)**2 of every aim in every held-out block. held_out: root mean square
    of the misses by aim.
    """

    form: str
    found: FittedNumbers
    squares: Floats
    held_out: dict[str, float]

    @property
    def score(self) -> float:
        """1 or less where nothing but noise is left."""
        return float(self.squares.mean())

    def summary(self) -> dict[str, Any]:
        """The summary for `--json`."""
        return {"form": self.form, "score": self.score, "held_out": self.held_out}


def judge(found: dict[str, FittedNumbers], aims: Aims) -> list[Judged]:
    """Hold each form to each block in turn. The noise is that of the form with the least, for what
    fits badly looks noisy.
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
    """The best of those with the fewest numbers that come within a standard error of the best."""
    best = min(judged, key=lambda one: one.score)
    spread = float(np.std(best.squares, ddof=1)) / best.squares.size**0.5
    enough = [one for one in judged if one.score <= best.score + spread]
    return min(enough, key=lambda one: (len(FORMS[one.form]), one.score))
