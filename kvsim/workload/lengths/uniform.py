"""Uniformly distributed lengths."""

from pathlib import Path
from typing import Self

import numpy as np
from pydantic import PositiveInt, model_validator

from kvsim.workload.lengths.distribution import LengthOptions, Lengths


class UniformLength(LengthOptions):
    """Uniform over min_tokens .. max_tokens, both ends included."""

    min_tokens: PositiveInt = 1
    max_tokens: PositiveInt

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min_tokens > self.max_tokens:
            raise ValueError("min_tokens must not exceed max_tokens")
        return self

    def draw(self, count: int, rng: np.random.Generator, base: Path) -> Lengths:
        """`count` uniform lengths."""
        return rng.integers(self.min_tokens, self.max_tokens, size=count, endpoint=True)
