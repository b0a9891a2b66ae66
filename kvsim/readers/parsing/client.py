"""Infer a client's behaviour from its requests: repeated prompts, and a closed loop."""

import heapq
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kvsim.plumbing.units import ceil_div
from kvsim.readers.description import Requests, SourceRequest

_LONGEST = 4096  # period that is looked for
_LOOKED_AT = 8192  # requests that a period is looked for in
_SAME = 0.95  # of the lengths, a period later
_CHANCE = 0.5  # at most: of two lengths drawn from these
_FEWEST = 3  # periods that say anything
_FULL = 0.05  # of all requests: so many are never sent at the most in flight by chance
_FEWEST_FULL = 20
BLOCK_TOKENS = 16  # of the prompts distinguished by their place in a period


class Period(NamedTuple):
    """Prompt lengths that repeat after a number of requests.

    requests is that number. share is the fraction of lengths equal to the one a period earlier.
    """

    requests: int
    share: float

    def __str__(self) -> str:
        return f"prompt lengths repeat every {self.requests:,} requests ({self.share:.0%} of them)"


class Limit(NamedTuple):
    """A client's limit of concurrent requests.

    share is the fraction of requests sent when the limit was reached, among those that could be.
    """

    requests: int
    share: float


def period_of(lengths: Sequence[int]) -> Period | None:
    """The shortest period of these prompt lengths, in the order in which they were sent.

    None if there is no period, or if there are so few different lengths that any order would seem
    periodic.
    """
    number = len(lengths)
    if not number or sum((count / number) ** 2 for count in Counter(lengths).values()) > _CHANCE:
        return None
    values = np.asarray(lengths)
    head = values[:_LOOKED_AT]
    for after in range(2, min(_LONGEST, number // _FEWEST) + 1):
        if np.mean(head[after:] == head[:-after]) >= _SAME:
            share = float(np.mean(values[after:] == values[:-after]))
            if share >= _SAME:
                return Period(after, share)
    return None


def repeated(requests: Requests, period: int) -> Requests:
    """The requests with prompt content added: two at the same position within the period, with
    equal lengths, have equal tokens.
    """
    first_ids: dict[tuple[int, int], int] = {}
    free = 0
    rows = []
    for index, row in enumerate(requests.rows):
        tokens = row.prompt_tokens or 0
        key = (index % period, tokens)
        if key not in first_ids:
            first_ids[key] = free
            free += ceil_div(tokens, BLOCK_TOKENS)
        first = first_ids[key]
        rows.append(
            row._replace(hash_ids=tuple(range(first, first + ceil_div(tokens, BLOCK_TOKENS))))
        )
    return Requests(tuple(rows), requests.clock, BLOCK_TOKENS)


def limit_of(rows: Sequence[SourceRequest]) -> Limit | None:
    """The client's limit of concurrent requests, if it often waited for an answer at that limit.

    None if it did not, or if times are missing.
    """
    ends: list[int] = []
    in_flight: list[int] = []  # with each request, as it is sent
    for start, end in sorted((row.arrival_ns or 0, row.last_token_ns or 0) for row in rows):
        while ends and ends[0] <= start:
            heapq.heappop(ends)
        heapq.heappush(ends, end)
        in_flight.append(len(ends))
    most = max(in_flight, default=0)
    full = in_flight.count(most)
    timed = all(row.arrival_ns is not None and row.last_token_ns is not None for row in rows)
    if not timed or most < 2 or full < max(_FEWEST_FULL, _FULL * len(rows)):
        return None
    return Limit(most, full / (len(rows) - most + 1))
