"""Shared prefixes of prompts (system prompts, tool definitions, documents), and multimodal items.

A pool holds `count` texts. Each request (or conversation) begins with one text of each pool, or
none, in the order of the pools in the scenario.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, model_validator

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.request import TokenRuns
from kvsim.workload.content import TokenIds
from kvsim.workload.lengths import LengthOptions, OneOrMore
from kvsim.workload.lengths.fixed import FixedLength
from kvsim.workload.random import generator

MOST_TEXTS = 10_000_000  # a gigabyte or two, and some ten seconds


Count = Annotated[int, Field(ge=1, le=MOST_TEXTS)]


class PrefixPool(Options):
    """`count` shared prefixes with lengths drawn by `tokens`; `share` of the prompts begin with
    one.

    zipf: the k-th most popular text is chosen with probability proportional to k ** -zipf; 0:
    uniform.
    """

    tokens: Annotated[LengthOptions, OneOrMore("workload.prefixes.tokens")]
    count: Count = 1
    share: Annotated[float, Field(ge=0, le=1)] = 1.0
    zipf: NonNegativeFloat = 0.0


class ItemPool(Options):
    """`count` images, sounds or videos; `share` of the prompts contain `per_prompt` of these.

    tokens: placeholder tokens of each, which are prompt tokens. count: if not given, every item is
    different. zipf: the k-th most popular item is chosen with probability proportional to k **
    -zipf; 0: uniform.
    """

    tokens: Annotated[LengthOptions, OneOrMore("workload.items.tokens")]
    count: Count | None = None
    share: Annotated[float, Field(ge=0, le=1)] = 1.0
    zipf: NonNegativeFloat = 0.0
    per_prompt: Annotated[LengthOptions, OneOrMore("workload.items.per_prompt")] = FixedLength(
        tokens=1
    )

    @model_validator(mode="after")
    def _some_come_again(self) -> "ItemPool":
        if self.zipf and self.count is None:
            raise ValueError("zipf changes nothing without count: no two items are the same")
        return self


def draw_items(
    pools: tuple[ItemPool, ...], count: int, seed: int, base: Path, ids: TokenIds
) -> list[TokenRuns]:
    """The items of each of `count` prompts, in order, as (content, tokens); each pool has its own
    random generator.
    """
    items: list[TokenRuns] = [()] * count
    for place, pool in enumerate(pools):
        rng = generator(seed, f"items {place}")
        kinds = pool.count
        contents = _texts(pool.tokens, kinds or 0, rng, base, ids)
        numbers = pool.per_prompt.draw(count, rng, base) * (rng.random(count) < pool.share)
        total = sum(numbers.tolist())  # numpy's own sum would wrap at 64 bits
        if total > MOST_TEXTS:
            raise InputError(
                "more items than a stream can have",
                where="workload.items.per_prompt",
                value=f"{total:,} items in {count:,} prompts",
                limit=f"{MOST_TEXTS:,}",
                remedy="take fewer items per prompt, or fewer requests",
            )
        if kinds is None:
            contents = _texts(pool.tokens, total, rng, base, ids)
        taken = iter(range(total) if kinds is None else _choices(kinds, pool.zipf, total, rng))
        for index, number in enumerate(numbers.tolist()):
            items[index] = (*items[index], *(contents[next(taken)] for _ in range(number)))
    return items


def _texts(
    tokens: LengthOptions, count: int, rng: np.random.Generator, base: Path, ids: TokenIds
) -> TokenRuns:
    """Token ids for each of `count` texts: (first id, tokens)."""
    lengths = tokens.draw(count, rng, base).tolist() if count else []
    return tuple((ids.take(length), length) for length in lengths)


def _choices(kinds: int, zipf: float, count: int, rng: np.random.Generator) -> list[int]:
    """`count` random indices of `kinds` texts, by popularity."""
    popularity = np.arange(1, kinds + 1) ** -zipf
    chosen: list[int] = rng.choice(kinds, size=count, p=popularity / popularity.sum()).tolist()
    return chosen


def draw_prefixes(
    pools: tuple[PrefixPool, ...], count: int, seed: int, base: Path, ids: TokenIds
) -> list[TokenRuns]:
    """The shared prefix of each of `count` prompts as runs, () for none; each pool has its own
    random generator.
    """
    prefixes: list[TokenRuns] = [()] * count
    for place, pool in enumerate(pools):
        rng = generator(seed, f"prefixes {place}")
        texts = _texts(pool.tokens, pool.count, rng, base, ids)
        taken = _choices(pool.count, pool.zipf, count, rng)
        with_one = rng.random(count) < pool.share
        for index in np.flatnonzero(with_one).tolist():
            prefixes[index] = (*prefixes[index], texts[taken[index]])
    return prefixes
