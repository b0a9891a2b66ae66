"""Any workload as a server without a KV cache meets it: every token computes all before it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Self

from pydantic import model_validator

from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.errors import InputError
from kvsim.request import Request, Stream
from kvsim.workload import WORKLOADS
from kvsim.workload.options import MOST_REQUESTS, WorkloadOptions


class Uncached(WorkloadOptions):
    """`kind = "uncached"`: the workload `of`, where every output token is a request of its own.

    Its prompt is all that was there before, the prompt and the tokens so far, and it comes as soon
    as the token before it is there. Nothing is shared: prefix caches find nothing.
    """

    of: Annotated[WorkloadOptions, OneOf(WORKLOADS, "workload.of")]

    @model_validator(mode="after")
    def _plain(self) -> Self:
        if isinstance(self.of, Uncached):
            raise ValueError("a workload of this kind within one: give the one that is meant")
        if self.n != 1 or self.of.n != 1:
            raise ValueError("samples share nothing without a cache: n must be 1")
        undeclared = type(self).model_fields["max_tokens"].get_default(call_default_factory=True)
        if self.max_concurrency or self.of.max_concurrency:
            raise ValueError("max_concurrency counts requests, and each token is one here")
        if self.priorities or self.adapters or self.max_tokens != undeclared:
            raise ValueError("priorities, max_tokens and adapters belong to the workload in `of`")
        return self

    def generate(self, seed: int, *, base: Path, max_model_len: int | None) -> Stream:
        """A request a token, those of one answer one after the other."""
        whole = self.of.generate(seed, base=base, max_model_len=max_model_len)
        total = sum(request.output_tokens for request in whole.requests)
        if total > MOST_REQUESTS:
            raise InputError(
                "too many output tokens, each of which is a request here",
                where="workload.of",
                value=f"{total:,}",
                limit=f"{MOST_REQUESTS:,}",
            )
        single = tuple(token for request in whole.requests for token in _tokens(request))
        note = f"{len(whole.requests):,} requests are {total:,}, one for each output token"
        return Stream(single, (*whole.notes, note), whole.source)


def _tokens(request: Request) -> Iterator[Request]:
    """A request's output tokens as requests; the last bears its name, for who comes after it."""
    before = request.after
    count = max(1, request.output_tokens)
    for index in range(count):
        last = index == count - 1
        token = request._replace(
            id=request.id if last else f"{request.id}#{index + 1}",
            prompt_tokens=request.prompt_tokens + index,
            output_tokens=min(1, request.output_tokens),
            max_tokens=1,
            prompt_runs=None,
            output_start=None,
            after=before,
            think_ps=0 if index else request.think_ps,
            session=request.id if request.session is None else request.session,
        )
        before = token.id
        yield token
