"""Shared beginnings of prompts (system prompts, tool definitions, documents), and items in them.

A pool holds `count` texts; each request (or conversation) takes one of them, or none, and pools
follow one another in the order they are written.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat

from kvsim.plumbing.options import Options
from kvsim.request import TokenRuns
from kvsim.workload.content import TokenIds
from kvsim.workload.lengths import LengthOptions, OneOrMore
from kvsim.workload.lengths.fixed import FixedLength
from kvsim.workload.random import generator

MOST_TEXTS = 10_000_000  # a gigabyte or two, and some ten seconds


class PrefixPool(Options):
    """`count` texts with lengths of their own; `share` of the prompts take one.

    zipf: the k-th most popular text is taken in proportion to k ** -zipf; 0: all alike.
    """

    tokens: Annotated[LengthOptions, OneOrMore("workload.prefixes.tokens")]
    count: Annotated[int, Field(ge=1, le=MOST_TEXTS)] = 1
    share: Annotated[float, Field(ge=0, le=1)] = 1.0
    zipf: NonNegativeFloat = 0.0


class ItemPool(PrefixPool):
    """`count` images, sounds or videos, of which `share` of the prompts take `per_prompt`.

    tokens: placeholders of each, which are prompt tokens.
    """

    per_prompt: Annotated[LengthOptions, OneOrMore("workload.items.per_prompt")] = FixedLength(
        tokens=1
    )


def draw_items(
    pools: tuple[ItemPool, ...], count: int, seed: int, base: Path, ids: TokenIds
) -> list[TokenRuns]:
    """For each of `count` prompts its items in order, as (content, tokens); seeded by pool."""
    items: list[TokenRuns] = [()] * count
    for place, pool in enumerate(pools):
        rng = generator(seed, f"items {place}")
        contents = _texts(pool, rng, base, ids)
        numbers = pool.per_prompt.draw(count, rng, base) * (rng.random(count) < pool.share)
        taken = iter(_choices(pool, int(numbers.sum()), rng))
        for index, number in enumerate(numbers.tolist()):
            items[index] = (*items[index], *(contents[next(taken)] for _ in range(number)))
    return items


def _texts(pool: PrefixPool, rng: np.random.Generator, base: Path, ids: TokenIds) -> TokenRuns:
    """Fresh ids for each text of a pool."""
    lengths = pool.tokens.draw(pool.count, rng, base).tolist()
    return tuple((ids.take(length), length) for length in lengths)


def _choices(pool: PrefixPool, count: int, rng: np.random.Generator) -> list[int]:
    """`count` texts by their popularity."""
    popularity = np.arange(1, pool.count + 1) ** -pool.zipf
    chosen: list[int] = rng.choice(pool.count, size=count, p=popularity / popularity.sum()).tolist()
    return chosen


def draw_prefixes(
    pools: tuple[PrefixPool, ...], count: int, seed: int, base: Path, ids: TokenIds
) -> list[TokenRuns]:
    """For each of `count` prompts the runs it begins with, () for none; seeded by pool."""
    prefixes: list[TokenRuns] = [()] * count
    for place, pool in enumerate(pools):
        rng = generator(seed, f"prefixes {place}")
        texts = _texts(pool, rng, base, ids)
        taken = _choices(pool, count, rng)
        with_one = rng.random(count) < pool.share
        for index in np.flatnonzero(with_one).tolist():
            prefixes[index] = (*prefixes[index], texts[taken[index]])
    return prefixes
