"""Admission of requests that ask for all their tokens (ignore_eos), without a radix cache: what
benchmarks do. Their ends are known, so the pass walks through them in order
(managers/schedule_policy.py, `add_one_req_ignore_eos`).
"""

from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

from kvsim.sequence import Sequence

RESERVED_TOKENS = 1  # of each request


class Span(NamedTuple):
    """tokens a request will still put out, and tokens that are free when it has ended.

    For a request without ignore_eos the new-token ratio estimates the rest: a fraction, and zero or
    less once its outputs exceed the estimate.
    """

    to_come: float
    held: int


def span(seq: Sequence, max_new_tokens: int, outputs: int, ratio: float) -> Span:
    """The span of `seq`, which has generated `outputs` tokens and may generate max_new_tokens."""
    share = 1.0 if seq.request.ignore_eos else ratio
    return Span(max_new_tokens * share - outputs, seq.prompt_tokens + outputs)


class Ends:
    """Requests by their ends: those that run or start in this pass, and those tried in it."""

    def __init__(self, first: Span, others: Iterable[Span]) -> None:
        spans = (span for span in (first, *others) if span.to_come > 0)
        self._spans = sorted(spans, key=itemgetter(0))

    def add(self, candidate: Span) -> None:
        """The next one to be weighed.

        The engine inserts it before the first that does not end before it. One that ends after all
        others goes before the last of them, so they may be out of order.
        """
        to_come = candidate.to_come
        if to_come <= 0:
            return
        spans = self._spans
        later = (index for index, span in enumerate(spans) if to_come <= span.to_come)
        spans.insert(next(later, max(0, len(spans) - 1)), candidate)

    def fit(self, left: int) -> bool:
        """Whether `left` free tokens suffice until all have ended, if no request starts
        meanwhile.
        """
        running, freed = len(self._spans), 0
        for to_come, held in self._spans:
            if left + freed - to_come * running <= RESERVED_TOKENS * running:
                return False
            freed += held
            running -= 1
        return True
