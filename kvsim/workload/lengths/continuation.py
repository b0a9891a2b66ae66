"""Number of turns of a conversation, from the probability of a further turn."""

from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from kvsim.workload.lengths.distribution import LengthOptions, Lengths


class Continuation(LengthOptions):
    """probabilities[k]: probability of another turn after turn k + 1; the last value applies to all
    later turns.
    """

    probabilities: tuple[Annotated[float, Field(ge=0, le=1)], ...]
    max_turns: PositiveInt = 1000

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.probabilities:
            raise ValueError("at least one probability is needed")
        return self

    def draw(self, count: int, rng: np.random.Generator, base: Path) -> Lengths:
        """`count` random numbers of turns, at most max_turns."""
        turns = np.ones(count, dtype=np.int64)
        going = np.arange(count)
        for turn in range(1, self.max_turns):
            chance = self.probabilities[min(turn, len(self.probabilities)) - 1]
            going = going[rng.random(len(going)) < chance]
            if not len(going):
                break
            turns[going] += 1
        return turns
