"""Flat up to a knee, then a straight line: memory-bound steps, then compute-bound ones."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from kvsim.step_time.calibrated.token_cost import Candidate, TokenCost

if TYPE_CHECKING:
    from kvsim.step_time.calibrated.token_cost import Columns, Tokens

_KNEES = 64


class Hinge(TokenCost):
    """g(T) = base_ps + per_token_ps * max(0, T - knee_tokens)."""

    base_ps: int = Field(ge=0)
    knee_tokens: int = Field(ge=0)
    per_token_ps: int = Field(ge=0)

    def ps(self, tokens: int) -> int:
        return self.base_ps + self.per_token_ps * max(0, tokens - self.knee_tokens)

    @classmethod
    def candidates(cls, tokens: "Tokens") -> Iterator[Candidate]:
        """Yield hinges without a knee, and with knees at the samples' own token counts, spread by
        rank.
        """
        unique = np.unique(tokens)[:-1]
        ranks = np.linspace(0, len(unique) - 1, min(_KNEES, len(unique))).round().astype(int)
        for knee in sorted({0, *unique[ranks].tolist()}):
            yield _candidate(int(knee))


def _candidate(knee: int) -> Candidate:
    def columns(tokens: "Tokens") -> "Columns":
        return np.column_stack([np.ones(len(tokens)), np.maximum(0.0, tokens - float(knee))])

    def build(coefficients: "Columns") -> Hinge:
        base, per_token = (round(float(value)) for value in coefficients)
        return Hinge(base_ps=base, knee_tokens=knee, per_token_ps=per_token)

    return Candidate(f"hinge at {knee} tokens", columns, build)
