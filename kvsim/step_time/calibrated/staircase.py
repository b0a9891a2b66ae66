"""One level per tile of tokens: a GEMM computes whole tiles, so its time jumps at their edges."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field, model_validator

from kvsim.plumbing.units import ceil_div
from kvsim.step_time.calibrated.token_cost import Candidate, TokenCost, ramps

if TYPE_CHECKING:
    from kvsim.step_time.calibrated.token_cost import Columns, Tokens

_TILES = (64, 128, 256)
_MOST_LEVELS = 64


class Staircase(TokenCost):
    """g(T) = levels_ps[tiles - 1] + per_token_ps * T, tiles = ceil(T / tile_tokens).

    levels_ps: by tiles begun, from 1 on, never falling; beyond the last, each further tile costs
    what the last one added.
    """

    tile_tokens: int = Field(ge=1)
    levels_ps: tuple[int, ...] = Field(min_length=1)
    per_token_ps: int = Field(ge=0)

    @model_validator(mode="after")
    def _levels_never_fall(self) -> Self:
        if self.levels_ps[0] < 0 or list(self.levels_ps) != sorted(self.levels_ps):
            raise ValueError("levels_ps must be >= 0 and never fall")
        return self

    def ps(self, tokens: int) -> int:
        tiles, levels = ceil_div(tokens, self.tile_tokens), self.levels_ps
        if tiles <= len(levels):
            level = levels[tiles - 1]
        else:
            last_rise = levels[-1] - levels[-2] if len(levels) > 1 else 0
            level = levels[-1] + last_rise * (tiles - len(levels))
        return level + self.per_token_ps * tokens

    @classmethod
    def candidates(cls, tokens: "Tokens") -> Iterator[Candidate]:
        """Yield staircases of 64, 128 and 256 tokens a tile, where these make 2 to 64 levels."""
        for tile in _TILES:
            if 2 <= ceil_div(int(tokens.max()), tile) <= _MOST_LEVELS:
                yield _candidate(tile, tokens)


def _candidate(tile: int, seen: "Tokens") -> Candidate:
    knots = np.unique(-(-seen // tile)).astype(float)  # only tiles with samples get a level to fit

    def columns(tokens: "Tokens") -> "Columns":
        tiles = (-(-tokens // tile)).astype(float)
        return np.column_stack([ramps(tiles, knots), tokens.astype(float)])

    def build(coefficients: "Columns") -> Staircase:
        levels = np.interp(np.arange(1.0, knots[-1] + 1), knots, np.cumsum(coefficients[:-1]))
        return Staircase(
            tile_tokens=tile,
            levels_ps=tuple(round(float(level)) for level in levels),
            per_token_ps=round(float(coefficients[-1])),
        )

    return Candidate(f"staircase of {tile} tokens", columns, build)
