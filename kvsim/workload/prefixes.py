"""Shared beginnings of prompts: system prompts, tool definitions, documents.

A pool holds `count` texts; each request (or conversation) takes one of them, or none, and pools
follow one another in the order they are written.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat

from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.options import Options
from kvsim.request import TokenRuns
from kvsim.workload.content import TokenIds
from kvsim.workload.lengths import LENGTHS, LengthOptions
from kvsim.workload.random import generator

MOST_TEXTS = 10_000_000  # a gigabyte or two, and some ten seconds


class PrefixPool(Options):
    """`count` texts with lengths of their own; `share` of the prompts take one.

    zipf: the k-th most popular text is taken in proportion to k ** -zipf; 0: all alike.
    """

    tokens: Annotated[LengthOptions, OneOf(LENGTHS, "workload.prefixes.tokens")]
    count: Annotated[int, Field(ge=1, le=MOST_TEXTS)] = 1
    share: Annotated[float, Field(ge=0, le=1)] = 1.0
    zipf: NonNegativeFloat = 0.0


def draw_prefixes(
    pools: tuple[PrefixPool, ...], count: int, seed: int, base: Path, ids: TokenIds
) -> list[TokenRuns]:
    """For each of `count` prompts the runs it begins with, () for none; seeded by pool."""
    prefixes: list[TokenRuns] = [()] * count
    for place, pool in enumerate(pools):
        rng = generator(seed, f"prefixes {place}")
        lengths = pool.tokens.draw(pool.count, rng, base).tolist()
        texts = [(ids.take(length), length) for length in lengths]
        popularity = np.arange(1, pool.count + 1) ** -pool.zipf
        taken = rng.choice(pool.count, size=count, p=popularity / popularity.sum())
        with_one = rng.random(count) < pool.share
        for index in np.flatnonzero(with_one).tolist():
            prefixes[index] = (*prefixes[index], texts[taken[index]])
    return prefixes
