"""The interface of a workload, and the options of every kind."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt

from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.request import Stream
from kvsim.workload.max_tokens import MAX_TOKENS, MaxTokensOptions

MOST_REQUESTS = 10**8  # of one stream: beyond it memory ends before patience
RequestCount = Annotated[int, Field(ge=1, le=MOST_REQUESTS)]
TokenLimit = PositiveInt | Literal["max_model_len"]


class PriorityClass(Options):
    """A share of the requests and their priority; under vLLM a lower priority runs first. Under
    SGLang a higher one does, unless schedule_low_priority_values_first is set.
    """

    priority: int
    share: NonNegativeFloat


class AdapterPool(Options):
    """`count` LoRA adapters; `share` of the requests (or conversations) use one of them.

    zipf: the k-th most popular adapter is chosen with probability proportional to k ** -zipf; 0:
    uniform.
    """

    count: Annotated[int, Field(ge=1, le=1_000_000)]
    share: Annotated[float, Field(ge=0, le=1)] = 1.0
    zipf: NonNegativeFloat = 0.0

    def draw(self, count: int, rng: np.random.Generator) -> list[int | None]:
        """A random adapter, or None for the base model, for each of `count` requests."""
        popularity = np.arange(1, self.count + 1) ** -self.zipf
        taken = rng.choice(self.count, size=count, p=popularity / popularity.sum()).tolist()
        with_one = rng.random(count) < self.share
        return [each if one else None for each, one in zip(taken, with_one, strict=True)]


class WorkloadOptions(Options):
    """Options of one workload kind; its fields are the keys of `[workload]` other than `kind`.

    n: number of parallel samples per prompt. priorities: classes drawn at random by share (none:
    all 0). max_tokens: the output length that clients declare. adapters: LoRA adapters that
    requests use. max_concurrency: most requests in flight. A request beyond this limit waits at its
    client, as under `vllm bench serve --max-concurrency`, and its latency counts from when it is
    sent.
    """

    n: Annotated[int, Field(ge=1, le=1024)] = 1
    priorities: tuple[PriorityClass, ...] = ()
    max_tokens: Annotated[MaxTokensOptions, OneOf(MAX_TOKENS, "workload.max_tokens")] = Field(
        default_factory=lambda: MAX_TOKENS.get("none")()
    )
    max_concurrency: PositiveInt | None = None
    adapters: AdapterPool | None = None

    def stream(self, seed: int, *, base: Path, max_model_len: int | None) -> Stream:
        """The requests and the clients' concurrency limit; see `generate`."""
        made = self.generate(seed, base=base, max_model_len=max_model_len)
        return replace(made, max_concurrency=self.max_concurrency)

    def generate(self, seed: int, *, base: Path, max_model_len: int | None) -> Stream:
        """Generate the requests, identical for the same seed.

        base: folder for relative paths (the scenario file's). max_model_len: value of
        `"max_model_len"` in limits; None: unknown. Raises InputError for files that cannot be used.
        """
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this


def resolve_limit(limit: TokenLimit | None, max_model_len: int | None, where: str) -> int | None:
    """A length limit as a number of tokens, at least 2 (one of prompt, one of output)."""
    if limit == "max_model_len":
        if max_model_len is None:
            raise InputError(
                "the model's longest sequence is not known here",
                where=where,
                remedy="give a number",
            )
        limit = max_model_len
    if limit is not None and limit < 2:
        raise InputError("no request fits", where=where, value=limit, limit="at least 2 tokens")
    return limit


def shares(weights: Sequence[float], where: str) -> list[float]:
    """Weights scaled to sum to 1; InputError if they are all zero."""
    total = sum(weights)
    if not total > 0:
        raise InputError("the shares sum to zero", where=where, limit="above 0")
    return [weight / total for weight in weights]
