"""A broken line over knots of T: no assumption but that time never falls with tokens."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field, model_validator

from kvsim.step_time.calibrated.token_cost import Candidate, TokenCost, ramps

if TYPE_CHECKING:
    from kvsim.step_time.calibrated.token_cost import Columns, Tokens

_KNOT_COUNTS = (6, 12, 24, 36)


class BrokenLine(TokenCost):
    """g(T) drawn straight between (knots_tokens[i], values_ps[i]), rounded down to a ps.

    Below the first knot the first value; beyond the last the last slope goes on.
    """

    knots_tokens: tuple[int, ...] = Field(min_length=2)
    values_ps: tuple[int, ...]

    @model_validator(mode="after")
    def _a_line_that_never_falls(self) -> Self:
        knots, values = self.knots_tokens, self.values_ps
        if len(knots) != len(values):
            raise ValueError("knots_tokens and values_ps must have equal lengths")
        if knots[0] < 0 or any(a >= b for a, b in pairwise(knots)):
            raise ValueError("knots_tokens must be >= 0 and rise")
        if values[0] < 0 or list(values) != sorted(values):
            raise ValueError("values_ps must be >= 0 and never fall")
        return self

    def ps(self, tokens: int) -> int:
        knots, values = self.knots_tokens, self.values_ps
        if tokens <= knots[0]:
            return values[0]
        i = min(bisect_right(knots, tokens), len(knots) - 1) - 1
        rise, run = values[i + 1] - values[i], knots[i + 1] - knots[i]
        return values[i] + rise * (tokens - knots[i]) // run

    @classmethod
    def candidates(cls, tokens: "Tokens") -> Iterator[Candidate]:
        """Yield candidates with up to 36 knots at the samples' own token counts, spread by rank."""
        unique = np.unique(tokens)
        if len(unique) < 2:
            return
        for count in sorted({min(count, len(unique)) for count in _KNOT_COUNTS}):
            ranks = np.linspace(0, len(unique) - 1, count).round().astype(int)
            yield _candidate(unique[ranks].astype(float))


def _candidate(knots: "Columns") -> Candidate:
    def columns(tokens: "Tokens") -> "Columns":
        return ramps(tokens.astype(float), knots)

    def build(coefficients: "Columns") -> BrokenLine:
        return BrokenLine(
            knots_tokens=tuple(int(knot) for knot in knots),
            values_ps=tuple(round(float(value)) for value in np.cumsum(coefficients)),
        )

    return Candidate(f"table of {len(knots)} knots", columns, build)
