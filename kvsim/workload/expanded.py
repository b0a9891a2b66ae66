"""Workloads in which each request is sent to the engine as several requests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import model_validator

from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.errors import InputError
from kvsim.request import Request, Stream
from kvsim.workload import WORKLOADS
from kvsim.workload.content import TokenIds
from kvsim.workload.options import MOST_REQUESTS, WorkloadOptions
from kvsim.workload.random import generator

FIRST_ID = 1 << 61  # beyond the ids that workloads hand out


class Expanded(WorkloadOptions):
    """The workload `of`, in which each request is sent as `count_of` requests of at most one output
    token.
    """

    of: Annotated[WorkloadOptions, OneOf(WORKLOADS, "workload.of")]

    def count_of(self, request: Request) -> int:
        """Number of engine requests that `request` becomes."""
        raise NotImplementedError(type(self).__name__)  # every kind that expands overrides this

    def expanded(
        self, request: Request, rng: np.random.Generator, ids: TokenIds
    ) -> Iterator[Request]:
        """The engine requests for one request. The last has its id, so a follow-up waits for the
        last.
        """
        raise NotImplementedError(type(self).__name__)  # as above

    @model_validator(mode="after")
    def _plain(self) -> Self:
        if isinstance(self.of, Expanded):
            raise ValueError("a workload of this kind within one: give the one that is meant")
        if self.n != 1 or self.of.n != 1:
            raise ValueError("each request is expanded alone: n must be 1")
        undeclared = type(self).model_fields["max_tokens"].get_default(call_default_factory=True)
        if getattr(self.of, "rounds", None) is not None:
            raise ValueError("rounds wait for requests, and each token is one here")
        if self.max_concurrency or self.of.max_concurrency:
            raise ValueError("max_concurrency counts requests, and each token is one here")
        if self.priorities or self.adapters or self.max_tokens != undeclared:
            raise ValueError("priorities, max_tokens and adapters belong to the workload in `of`")
        return self

    def generate(self, seed: int, *, base: Path, max_model_len: int | None) -> Stream:
        """The engine requests of the whole workload, in the order of the original requests."""
        whole = self.of.generate(seed, base=base, max_model_len=max_model_len)
        total = sum(map(self.count_of, whole.requests))
        if total > MOST_REQUESTS:
            raise InputError(
                "too many output tokens, each of which is a request here, or several",
                where="workload.of",
                value=f"{total:,}",
                limit=f"{MOST_REQUESTS:,}",
            )
        rng = generator(seed, "expanded")
        ids = TokenIds(FIRST_ID)
        made = tuple(
            token for request in whole.requests for token in self.expanded(request, rng, ids)
        )
        note = f"{len(whole.requests):,} requests are {total:,} of one output token each"
        return Stream(made, (*whole.notes, note), whole.source)
