"""Admission of requests with ignore_eos, without a radix cache, as in benchmarks.

Such requests end after max_tokens, so the pass simulates the ends of all requests in order
(managers/schedule_policy.py, `add_one_req_ignore_eos`).
"""

from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

from kvsim.sequence import Sequence

RESERVED_TOKENS = 1  # of each request


class Span(NamedTuple):
    """A request in that simulation: output tokens to come, and tokens that it frees when it ends.

    For a request without ignore_eos the new-token ratio estimates the outputs to come. The estimate
    is a fraction, and zero or less once its outputs exceed it.
    """

    to_come: float
    held: int


def span(seq: Sequence, max_new_tokens: int, outputs: int, ratio: float) -> Span:
    """The span of `seq`, which has generated `outputs` tokens and may generate max_new_tokens."""
    share = 1.0 if seq.request.ignore_eos else ratio
    return Span(max_new_tokens * share - outputs, seq.prompt_tokens + outputs)


class Ends:
    """Requests sorted by output tokens to come: those that run or start in this pass, and those
    tried in it.
    """

    def __init__(self, first: Span, others: Iterable[Span]) -> None:
        spans = (span for span in (first, *others) if span.to_come > 0)
        self._spans = sorted(spans, key=itemgetter(0))

    def add(self, candidate: Span) -> None:
        """Insert the next request to be tried.

        SGLang inserts it before the first request that ends no earlier. One that ends after all
        others is put before the last, so the order may be wrong.
        """
        to_come = candidate.to_come
        if to_come <= 0:
            return
        spans = self._spans
        later = (index for index, span in enumerate(spans) if to_come <= span.to_come)
        spans.insert(next(later, max(0, len(spans) - 1)), candidate)

    def fit(self, left: int) -> bool:
        """Whether `left` free tokens suffice until all requests have ended, if no other starts."""
        running, freed = len(self._spans), 0
        for to_come, held in self._spans:
            if left + freed - to_come * running <= RESERVED_TOKENS * running:
                return False
            freed += held
            running -= 1
        return True
